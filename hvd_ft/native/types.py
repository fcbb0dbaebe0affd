"""Ranks, events and snapshots as the core reports them: the types of ``hvd_ft.h`` in Python."""

from dataclasses import dataclass
from enum import IntEnum

from hvd_ft.native.abi import constant

# Prefix of last words if the script has not begun.
BEFORE_INIT = "before hvd.init(): "


class State(IntEnum):
    """What a rank is doing."""

    STARTING = constant("HVDFT_STARTING")
    RUNNING = constant("HVDFT_RUNNING")
    WAITING = constant("HVDFT_WAITING")
    RESTARTING = constant("HVDFT_RESTARTING")
    REPLAYING = constant("HVDFT_REPLAYING")
    DONE = constant("HVDFT_DONE")


@dataclass(frozen=True)
class OpRules:
    """How ops are executed: rank 0's agent writes this into the op log with each op.

    Attributes:
        node_segment: bytes that a node's ranks sum at a time; a power of two.
        most_gathered: bytes of the largest op that nodes gather.
        ring_segment: bytes of the largest message of the ring, for larger ops.
        ablates_network: whether sums stay on their nodes, for measurements.
    """

    node_segment: int
    most_gathered: int
    ring_segment: int
    ablates_network: bool


class EventType(IntEnum):
    """What happened to a rank; ``include/hvd_ft.h`` documents each type's detail."""

    LOST = constant("HVDFT_EV_LOST")
    STARTED = constant("HVDFT_EV_STARTED")
    FAILED = constant("HVDFT_EV_FAILED")
    ATTACHED = constant("HVDFT_EV_ATTACHED")
    RESTORED = constant("HVDFT_EV_RESTORED")
    JOINED = constant("HVDFT_EV_JOINED")
    WAITED = constant("HVDFT_EV_WAITED")
    DONE = constant("HVDFT_EV_DONE")
    SNAPSHOT = constant("HVDFT_EV_SNAPSHOT")
    ADOPTED = constant("HVDFT_EV_ADOPTED")
    RESUMED = constant("HVDFT_EV_RESUMED")
    DIVERGED = constant("HVDFT_EV_DIVERGED")
    CHECKPOINT = constant("HVDFT_EV_CHECKPOINT")
    SHARE = constant("HVDFT_EV_SHARE")
    CHECKPOINTED = constant("HVDFT_EV_CHECKPOINTED")


class Point(IntEnum):
    """A point in a worker's life at which a drill can strike."""

    START = constant("HVDFT_AT_START")
    ATTACH = constant("HVDFT_AT_ATTACH")
    JOIN = constant("HVDFT_AT_JOIN")
    ANNOUNCE = constant("HVDFT_AT_ANNOUNCE")
    PROPOSE = constant("HVDFT_AT_PROPOSE")
    PROPOSED = constant("HVDFT_AT_PROPOSED")
    COPY_IN = constant("HVDFT_AT_COPY_IN")
    CONTRIBUTE = constant("HVDFT_AT_CONTRIBUTE")
    REDUCE = constant("HVDFT_AT_REDUCE")
    WAIT = constant("HVDFT_AT_WAIT")
    COPY_OUT = constant("HVDFT_AT_COPY_OUT")
    EXECUTED = constant("HVDFT_AT_EXECUTED")
    STEP = constant("HVDFT_AT_STEP")
    SNAPSHOT_WRITE = constant("HVDFT_AT_SNAPSHOT_WRITE")
    SNAPSHOT_PUBLISH = constant("HVDFT_AT_SNAPSHOT_PUBLISH")
    SNAPSHOT_PUBLISHED = constant("HVDFT_AT_SNAPSHOT_PUBLISHED")
    RESTORE = constant("HVDFT_AT_RESTORE")
    REPLAY = constant("HVDFT_AT_REPLAY")
    END = constant("HVDFT_AT_END")
    EXIT = constant("HVDFT_AT_EXIT")
    SEND = constant("HVDFT_AT_SEND")
    SENT = constant("HVDFT_AT_SENT")
    RECEIVE = constant("HVDFT_AT_RECEIVE")
    RECEIVED = constant("HVDFT_AT_RECEIVED")
    MARK = constant("HVDFT_AT_MARK")
    FINGERPRINTS = constant("HVDFT_AT_FINGERPRINTS")
    SNAPSHOT_DROP = constant("HVDFT_AT_SNAPSHOT_DROP")
    SNAPSHOT_DELIVERED = constant("HVDFT_AT_SNAPSHOT_DELIVERED")
    RETURN = constant("HVDFT_AT_RETURN")


class Left(IntEnum):
    """Whether a rank has left a running job."""

    NO = 0
    FOR_GOOD = constant("HVDFT_HAS_LEFT")  # the others are in another training loop
    MAY_RETURN = constant("HVDFT_MAY_RETURN")


class WaitResult(IntEnum):
    """Why :meth:`Agent.wait` returned."""

    NOTHING = 0  # woken for another reason, or the time is over
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
class Divergence:
    """Variables that were equal on all ranks, and at a step boundary no longer are.

    Attributes:
        variable: the name of the first of them; among very many variables, the first and the last
            name of a group that contains one.
        step: the number of steps that the training loop had done.
        ranks: the ranks that differ from the majority; all ranks if there is no majority.
        variables: the number of variables that differ since then.
        equal_step: the latest step at which the ranks were compared and equal; 0 if it was before
            this training loop.
    """

    variable: str
    step: int
    ranks: tuple[int, ...]
    variables: int
    equal_step: int

    @property
    def rank(self) -> int | None:
        """The only rank that differs; None if there are several."""
        return self.ranks[0] if len(self.ranks) == 1 else None

    @property
    def what(self) -> str:
        """The variables, for a line of text."""
        more = self.variables - 1
        others = f" and {more} more variable{'s' * (more > 1)}" if more else ""
        return f"{self.variable}{others}"

    @property
    def where(self) -> str:
        """The ranks, for a line of text."""
        *most, last = [str(rank) for rank in self.ranks]
        return f"ranks {', '.join(most)} and {last}" if most else f"rank {last}"


@dataclass(frozen=True)
class Status:
    """The present state of a rank. ``pid`` is the process id of its worker; 0 if it has none.

    ``step_bytes``: the most bytes so far of a training step's results, without broadcasts.
    """

    state: State
    incarnation: int
    pid: int
    step: int
    executed: int
    since_ns: int
    step_bytes: int = 0


@dataclass(frozen=True)
class Memory:
    """The memory of a node's arenas, in bytes: at one moment, or the most of each part.

    Attributes:
        total: slots, heap, messages, input areas and control area together.
        slots: of snapshots. In them lie ...
        shared_state: ... what the node's ranks share, once for all, ...
        private_state: ... and what each rank has of its own, or stores alone.
        heap: of the op log: its ops, and what is free between them.
        log: of this, ops that truncation can free.
        kept: and ops that are kept as long as the job lives.
        messages: between ranks.
        input_areas: of the node's ranks.
        control: of the control area.
        limit: of the total.
    """

    total: int
    slots: int
    shared_state: int
    private_state: int
    heap: int
    log: int
    kept: int
    messages: int
    input_areas: int
    control: int
    limit: int


@dataclass(frozen=True)
class Snapshot:
    """A rank's part of a snapshot of a training loop.

    Attributes:
        cut: its number, from 1; it grows within the loop.
        position: the rank's cursor in the op log at the moment whose state it holds.
        bytes: of the part.
        stripe: where in it the rank's share of what is equal on all ranks begins.
        agreement: what that is, as a hash; 0: the whole snapshot is in this part.
    """

    cut: int
    position: int
    bytes: int
    stripe: int = 0
    agreement: int = 0


@dataclass(frozen=True)
class Snapshots:
    """The cost of a rank's snapshots, over all its incarnations.

    Attributes:
        count: snapshots published.
        steps: from the latest one to the next, as chosen; 0 before the first.
        training_ns: time in training loops.
        stall_ns: part of this for which training stood still for snapshots.
        copy_ns: CPU time of the thread that copies while training continues.
    """

    count: int = 0
    steps: int = 0
    training_ns: int = 0
    stall_ns: int = 0
    copy_ns: int = 0


@dataclass(frozen=True)
class Times:
    """How a rank has spent the time of its rounds, over all its incarnations (rank_times.h).

    Attributes:
        rounds: each ends when no tensor is pending any more.
        compute_ns: until its script had handed the last tensor over.
        wait_ns: then blocked, while other ranks had not handed over theirs; and in receives.
        copy_ns: blocked while an op was under way: copies and sums on its node …
        network_ns: … or nothing was left to do there, and other nodes' parts were missing.
    """

    rounds: int = 0
    compute_ns: int = 0
    wait_ns: int = 0
    copy_ns: int = 0
    network_ns: int = 0

    @property
    def total_ns(self) -> int:
        """The time of all rounds."""
        return self.compute_ns + self.wait_ns + self.copy_ns + self.network_ns


@dataclass(frozen=True)
class OpMoments:
    """When a rank came to an op, CLOCK_MONOTONIC in ns; 0: not yet (op_times.h).

    Of the ring, in which a node takes part: `begun_ns` is when the op's first message had come,
    `contributed_ns` when its reduce-scatter was over (0: of a gathered op), `done_ns` when the last
    message had come; `handed_ns` is 0.

    Attributes:
        op: its id.
        handed_ns: its script had handed tensors over, latest before …
        begun_ns: … the op began: all ranks had announced theirs.
        contributed_ns: it had contributed its input; 0 also if an earlier incarnation did.
        done_ns: it had taken the result.
    """

    op: int
    handed_ns: int
    begun_ns: int
    contributed_ns: int = 0
    done_ns: int = 0


@dataclass(frozen=True)
class Log:
    """The part of the op log that snapshots can truncate, and the room for it."""

    bytes: int
    bytes_room: int
    ops: int
    ops_room: int


@dataclass(frozen=True)
class Watch:
    """Counters that show a worker's progress; `asleep`: it waits and is not yet notified."""

    state: State
    incarnation: int
    pending: int
    asleep: bool
    contributed: int
    executed: int
    announced: int
    step: int
