"""The rule that says what each rank waits for, from how far all ranks have come. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hvd_ft.native.types import Left, State
from hvd_ft.status.snapshot import Wait

_AWAY = (State.RESTARTING, State.REPLAYING)


@dataclass(frozen=True)
class Progress:
    """How far a rank has come.

    Attributes:
        state: what it does.
        pending: tensors that its script waits for.
        executed: ops that it has executed; the next one has this id.
        contributed: ops to which it has contributed all of its input.
        left: whether it has left the job.
    """

    state: State
    pending: int
    executed: int
    contributed: int
    left: Left = Left.NO

    @property
    def takes_part(self) -> bool:
        """Whether others may wait for it."""
        return self.state is not State.DONE and self.left is Left.NO


def waits(ranks: Mapping[int, Progress], log_length: int) -> dict[int, Wait]:
    """Returns what each rank waits for; ranks that wait for nothing are left out.

    Args:
        ranks: all of them, as read one after the other while they run: what looks impossible is
            taken for no wait.
        log_length: number of agreed ops.
    """
    found = {}
    for rank, mine in ranks.items():
        if mine.takes_part and mine.state not in _AWAY and (wait := _wait(rank, ranks, log_length)):
            found[rank] = wait
    return found


def _wait(rank: int, ranks: Mapping[int, Progress], log_length: int) -> Wait | None:
    mine = ranks[rank]
    others = {number: each for number, each in ranks.items() if number != rank and each.takes_part}
    if mine.pending <= 0:
        away = [number for number, each in others.items() if each.state in _AWAY]
        waits_for_one = mine.state is State.WAITING and away  # in a receive
        return Wait(kind="rank", ranks=away) if waits_for_one else None
    op = mine.executed
    if op >= log_length:
        late = [number for number, each in others.items() if each.pending <= 0 or _is_away(each)]
        return Wait(kind="announcement", ranks=late)
    if mine.contributed <= op:
        return None  # it works: its input is not copied yet
    late = [number for number, each in others.items() if each.contributed <= op]
    return Wait(kind="contribution" if late else "sum", ranks=late, op=op)


def _is_away(rank: Progress) -> bool:
    return rank.state in _AWAY


def blamed(found: Mapping[int, Wait]) -> dict[int, int]:
    """Returns for how many ranks each rank is waited for, the most awaited first."""
    counts: dict[int, int] = {}
    for wait in found.values():
        for rank in wait.ranks:
            counts[rank] = counts.get(rank, 0) + 1
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))
