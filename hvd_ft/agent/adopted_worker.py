"""The verdict of a new generation's agent on the worker that it finds. Pure.

The shim knows the state of the latest worker that it was ordered to start; the arena contains what
the previous agent published about that worker. The previous agent may have been killed between any
two of its actions.
"""

import signal
from dataclasses import dataclass

from hvd_ft.native.types import State, Status
from hvd_ft.shim.messages import FoundWorker


@dataclass(frozen=True)
class GoesOn:
    """The worker lives.

    Attributes:
        incarnation: the worker's incarnation.
        pid: its process id.
        noted: whether the arena knows of it.
        begun: whether it was ordered to begin, for which a spare waits.
    """

    incarnation: int
    pid: int
    noted: bool
    begun: bool


@dataclass(frozen=True)
class HasEnded:
    """The worker has ended, and its end has not been handled yet.

    Attributes:
        incarnation: the worker's incarnation.
        pid: the process id that it had.
        noted: whether the arena knows that it was started.
        status: as from wait(2).
        time_ns: when it ended, CLOCK_MONOTONIC; None if that is not known.
        why: what else the shim knows about the end; "" if nothing.
    """

    incarnation: int
    pid: int
    noted: bool
    status: int
    time_ns: int | None
    why: str = ""


@dataclass(frozen=True)
class ToStart:
    """There is no worker; this incarnation is to be started."""

    incarnation: int


@dataclass(frozen=True)
class IsDone:
    """The rank has done its work."""


def reattach_verdict(
    found: FoundWorker | None, arena: Status
) -> GoesOn | HasEnded | ToStart | IsDone:
    """Returns what the new agent has to do.

    Args:
        found: the shim's report; None if it has started no worker, or was killed together with it.
        arena: the rank's status.
    """
    if arena.state is State.DONE:
        return IsDone()
    reaped = arena.pid == 0
    if found is None or not found.pid:
        if not reaped:
            return HasEnded(arena.incarnation, arena.pid, True, int(signal.SIGKILL), None)
        return ToStart(arena.incarnation + (arena.state is State.RESTARTING))
    incarnation, pid = found.incarnation, found.pid
    noted = (incarnation, pid) == (arena.incarnation, arena.pid)
    if found.end is None:
        return GoesOn(incarnation, pid, noted, found.begun)
    if incarnation == arena.incarnation and reaped and arena.state is State.RESTARTING:
        return ToStart(incarnation + 1)
    status, time_ns = found.end
    return HasEnded(incarnation, pid, noted, status, time_ns, found.why)
