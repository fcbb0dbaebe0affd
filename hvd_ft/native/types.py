"""What the core tells of ranks and events: the values of ``hvd_ft.h`` as Python knows them."""

from dataclasses import dataclass
from enum import IntEnum

# So last words begin if the script has not come that far.
BEFORE_INIT = "before hvd.init(): "


class State(IntEnum):
    """What a rank is doing."""

    STARTING = 0
    RUNNING = 1
    WAITING = 2
    RESTARTING = 3
    REPLAYING = 4
    DONE = 5


class EventType(IntEnum):
    """What happened to a rank; ``include/hvd_ft.h`` tells what each one's detail means."""

    LOST = 0
    STARTED = 1
    FAILED = 2
    ATTACHED = 3
    RESTORED = 4
    JOINED = 5
    WAITED = 6
    DONE = 7
    SNAPSHOT = 8
    ADOPTED = 9
    RESUMED = 10


class Point(IntEnum):
    """A point in a worker's life at which a drill can strike."""

    START = 0
    ATTACH = 1
    JOIN = 2
    ANNOUNCE = 3
    PROPOSE = 4
    PROPOSED = 5
    COPY_IN = 6
    CONTRIBUTE = 7
    REDUCE = 8
    WAIT = 9
    COPY_OUT = 10
    EXECUTED = 11
    STEP = 12
    SNAPSHOT_WRITE = 13
    SNAPSHOT_PUBLISH = 14
    SNAPSHOT_PUBLISHED = 15
    RESTORE = 16
    REPLAY = 17
    END = 18
    EXIT = 19
    SEND = 20
    SENT = 21
    RECEIVE = 22
    RECEIVED = 23


class WaitResult(IntEnum):
    """Why :meth:`Agent.wait` came back."""

    NOTHING = 0  # woken for somebody else's sake, or the time is over
    STOPPED = 1
    ALL_DONE = 2
    EVENT = 3


@dataclass(frozen=True)
class Event:
    """One entry of the node's event list. ``time_ns`` is CLOCK_MONOTONIC."""

    time_ns: int
    type: EventType
    rank: int
    incarnation: int
    detail: int


@dataclass(frozen=True)
class Status:
    """A rank, as it stands now. ``pid`` is its worker's, 0 when there is none."""

    state: State
    incarnation: int
    pid: int
    step: int
    executed: int
    since_ns: int


@dataclass(frozen=True)
class Snapshots:
    """What snapshots have cost a rank, over all its incarnations.

    Attributes:
        count: snapshots published.
        steps: from the latest one to the next, as chosen; 0 before the first.
        training_ns: time in training loops.
        stall_ns: of this, time in which training stood still for snapshots.
        copy_ns: CPU time of the thread that copies while training goes on.
    """

    count: int = 0
    steps: int = 0
    training_ns: int = 0
    stall_ns: int = 0
    copy_ns: int = 0


@dataclass(frozen=True)
class Log:
    """What the op log holds that snapshots can cut, and how much of that there is room for."""

    bytes: int
    bytes_room: int
    ops: int
    ops_room: int


@dataclass(frozen=True)
class Watch:
    """What tells whether a rank's worker gets on; `asleep`: it waits, not yet notified."""

    state: State
    incarnation: int
    pending: int
    asleep: bool
    contributed: int
    executed: int
    announced: int
    step: int
