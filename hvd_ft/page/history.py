"""What the ranks of a job did over the last minutes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import msgspec

KEPT_SECONDS = 600.0


class Span(msgspec.Struct, frozen=True):
    """A time in which a rank was in one state.

    Attributes:
        begin: seconds of CLOCK_MONOTONIC.
        end: likewise; of the latest look for a state that lasts.
        state: as in a rank's status.
        incarnation: of the rank.
    """

    begin: float
    end: float
    state: str
    incarnation: int


class History:
    """The states of each rank, as they were seen at each look.

    Args:
        kept_seconds: how far back it goes.
    """

    def __init__(self, kept_seconds: float = KEPT_SECONDS) -> None:
        self._kept = kept_seconds
        self._spans: dict[int, deque[Span]] = {}

    def add(self, now: float, states: Mapping[int, tuple[str, int]]) -> None:
        """Adds a look.

        Args:
            now: its time, seconds of CLOCK_MONOTONIC.
            states: of each rank: its state and incarnation. Others are gone.
        """
        for rank in self._spans.keys() - states.keys():
            del self._spans[rank]
        for rank, (state, incarnation) in states.items():
            spans = self._spans.setdefault(rank, deque())
            last = spans[-1] if spans else None
            if last and (last.state, last.incarnation) == (state, incarnation):
                spans[-1] = Span(last.begin, now, state, incarnation)
            else:
                if last:
                    spans[-1] = msgspec.structs.replace(last, end=now)
                spans.append(Span(now, now, state, incarnation))
            while spans[0].end < now - self._kept:
                spans.popleft()

    def spans(self) -> dict[int, list[Span]]:
        """Returns the spans of each rank, in order of time."""
        return {rank: list(spans) for rank, spans in self._spans.items()}
