"""What a new agent makes of the worker it finds, wherever the older one was killed."""

import signal

import pytest

from hvd_ft.agent.adopted_worker import GoesOn, HasEnded, IsDone, ToStart, reattach_verdict
from hvd_ft.native.types import State, Status
from hvd_ft.shim.messages import FoundWorker

KILLED = int(signal.SIGKILL)


def arena(state: State, incarnation: int, pid: int) -> Status:
    return Status(state, incarnation, pid, step=3, executed=5, since_ns=1)


def found(
    incarnation: int, pid: int, begun: bool = True, end: tuple[int, int] | None = None
) -> FoundWorker:
    return FoundWorker(incarnation, pid, begun, end)


@pytest.mark.parametrize(
    ("shim", "rank", "verdict"),
    [
        # All is as it should be.
        (found(0, 7), arena(State.RUNNING, 0, 7), GoesOn(0, 7, True, True)),
        (found(2, 7), arena(State.REPLAYING, 2, 7), GoesOn(2, 7, True, True)),
        # Started, and the agent died before it noted that; a spare waits for its go.
        (found(0, 7), arena(State.STARTING, 0, 0), GoesOn(0, 7, False, True)),
        (found(1, 8, False), arena(State.RESTARTING, 0, 0), GoesOn(1, 8, False, False)),
        # They died together.
        (
            found(0, 7, end=(KILLED, 44)),
            arena(State.RUNNING, 0, 7),
            HasEnded(0, 7, True, KILLED, 44),
        ),
        # It died before its start was noted.
        (
            found(1, 8, end=(KILLED, 44)),
            arena(State.RESTARTING, 0, 0),
            HasEnded(1, 8, False, KILLED, 44),
        ),
        (
            found(0, 7, end=(256, 44)),
            arena(State.STARTING, 0, 0),
            HasEnded(0, 7, False, 256, 44),
        ),
        # The shim knows why.
        (
            FoundWorker(1, 7, True, (KILLED, 44), "lack of memory"),
            arena(State.RUNNING, 1, 7),
            HasEnded(1, 7, True, KILLED, 44, "lack of memory"),
        ),
        # Its death is noted, the next one not started.
        (found(1, 7, end=(KILLED, 44)), arena(State.RESTARTING, 1, 0), ToStart(2)),
        # The agent died before it started any.
        (None, arena(State.STARTING, 0, 0), ToStart(0)),
        # The shim was killed as well, and with it the worker.
        (None, arena(State.WAITING, 3, 9), HasEnded(3, 9, True, KILLED, None)),
        (None, arena(State.RESTARTING, 3, 0), ToStart(4)),
        # Its command could not be started: the attempt and the report are repeated.
        (found(1, 0), arena(State.RESTARTING, 0, 0), ToStart(1)),
        (found(0, 7, end=(0, 44)), arena(State.DONE, 0, 0), IsDone()),
        (None, arena(State.DONE, 1, 0), IsDone()),
    ],
)
def test_what_is_done(shim: FoundWorker | None, rank: Status, verdict: object) -> None:
    assert reattach_verdict(shim, rank) == verdict
