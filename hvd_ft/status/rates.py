"""Steps per second of ranks, from readings of their steps. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

WINDOW_SECONDS = 30.0


class Rates:
    """The rates of all ranks over the latest half minute.

    A rate is measured from one change of a rank's step to a later one, not between readings: so it
    does not depend on how often the steps are read, as long as that is more often than they change.
    """

    def __init__(self) -> None:
        self._steps: dict[int, int] = {}
        self._changes: dict[int, deque[tuple[float, int]]] = {}

    def read(self, now: float, steps: Mapping[int, int]) -> None:
        """Takes a reading.

        Args:
            now: seconds on any steady clock.
            steps: of each rank.
        """
        for rank, step in steps.items():
            before = self._steps.get(rank)
            self._steps[rank] = step
            changes = self._changes.setdefault(rank, deque())
            if before is not None and step < before:
                changes.clear()  # another incarnation, or another loop
            elif before is not None and step > before:
                changes.append((now, step))
            while changes and changes[0][0] < now - WINDOW_SECONDS:
                changes.popleft()

    def of(self, rank: int) -> float | None:
        """Returns the steps per second of a rank; None if too few of its steps were seen."""
        changes = self._changes.get(rank)
        if changes is None or len(changes) < 2:
            return None
        (first, begin), (last, end) = changes[0], changes[-1]
        return (end - begin) / (last - first)

    @property
    def all_known(self) -> bool:
        """Whether there is a rate of each rank that has a step."""
        return all(self.of(rank) is not None for rank, step in self._steps.items() if step)
