"""The facts of a report for its tables, checked: a file may be damaged, or no report.

Older versions wrote fewer facts, so most of them may be absent.
"""

from typing import Annotated

import msgspec

Number = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]  # as the arenas have them
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class SnapshotFacts(msgspec.Struct, frozen=True):
    """The cost of a rank's snapshots; see native.types.Snapshots."""

    count: Number = 0
    steps: Number = 0
    training_ns: Number = 0
    stall_ns: Number = 0
    copy_ns: Number = 0


class TimesFacts(msgspec.Struct, frozen=True):
    """How a rank has spent its rounds, in ns; see native.types.Times."""

    rounds: Number = 0
    compute_ns: Number = 0
    wait_ns: Number = 0
    copy_ns: Number = 0
    network_ns: Number = 0


class RankFacts(msgspec.Struct, frozen=True):
    """The facts of a rank, at the end of the job.

    Attributes:
        rank: its number.
        step: of its training loop.
        step_bytes: bytes that it has reduced in a step.
        snapshots: the cost of its snapshots.
        times: how it has spent its time; all 0 in a report of an older version.
    """

    rank: Number
    step: Number = 0
    step_bytes: Number = 0
    snapshots: SnapshotFacts = SnapshotFacts()
    times: TimesFacts = TimesFacts()


class MostMemory(msgspec.Struct, frozen=True):
    """The most bytes of each part of a node's memory; see native.types.Memory."""

    shared_state: Number
    private_state: Number
    heap: Number
    messages: Number
    input_areas: Number
    control: Number
    total: Number
    limit: Number


class NodeFacts(msgspec.Struct, frozen=True):
    """The facts of a node, at the end of the job.

    Attributes:
        first_rank: the first rank on the node.
        most: the most memory it has used.
    """

    first_rank: Number
    most: MostMemory


class Facts(msgspec.Struct, frozen=True):
    """The facts of a job.

    Attributes:
        hosts: the hosts of its ranks.
        command: the command that was run.
        nodes: in the order of their first ranks.
        ranks: all ranks.
        fusion_threshold: bytes of stock Horovod's fusion buffer.
        begun_ns: when hvdft run began, on the clock of the events.
        schema: version of the report.
    """

    hosts: list[str] = []
    command: list[str] = []
    nodes: list[NodeFacts] = []
    ranks: list[RankFacts] = []
    fusion_threshold: Number = 0
    begun_ns: Number | None = None
    schema: Number = 0


class EventFacts(msgspec.Struct, frozen=True):
    """The numbers of an event's line."""

    time_ns: Number
    rank: Number
    incarnation: Number
    detail: int

    def __post_init__(self) -> None:
        if self.detail >> 64:  # more than msgspec has a bound for
            raise ValueError("the detail has more than 64 bits")


class ReplacementFacts(msgspec.Struct, frozen=True):
    """A host's replacement by a spare one."""

    time_ns: Number
    host: str
    by: str
    ranks: list[Number]
    epoch: Number


class SlowFacts(msgspec.Struct, frozen=True):
    """Ranks that have begun to be slow, or no longer are; see agent/slow_rule.py.

    Attributes:
        time_ns: when, CLOCK_MONOTONIC.
        ranks: one, or all of a host.
        host: their host.
        ended: whether they no longer are.
        text: the line that the user saw.
        late: share of the intervals in which they were the last.
        seconds: of the intervals; if they have ended, for how long they were slow.
        wait: share of the time for which the others waited for them.
        step_seconds: of a step; None if the script counts none.
        causes: what the system told, in sentences.
    """

    time_ns: Number
    ranks: list[Number]
    host: str
    ended: bool
    text: str
    late: float
    seconds: float
    wait: float
    step_seconds: float | None = None
    causes: list[str] = []


class OpFacts(msgspec.Struct, frozen=True, array_like=True):
    """An op on a rank, in ns; of a node in the ring: see the report's schema.

    Attributes:
        op: its id.
        begun: since the line's time.
        wait: before that, since the script had handed tensors over; None: unknown.
        contributed: since it began; None: unknown.
        done: since it began.
    """

    op: Count
    begun: Count
    wait: Count | None
    contributed: Count | None
    done: Count


class OpsFacts(msgspec.Struct, frozen=True):
    """Ops of one rank, or of one node in the ring, that have ended; see agent/op_trace.py."""

    time_ns: Number
    rank: Number
    incarnation: Number
    ops: list[OpFacts]


class CauseFacts(msgspec.Struct, frozen=True):
    """Why a worker died: its last words, or what was found out."""

    rank: Number
    incarnation: Number
    text: str


class StacksFacts(msgspec.Struct, frozen=True):
    """The stacks of a worker that kept others waiting."""

    rank: Number
    text: str
    incarnation: Number = 0
    time_ns: Number = 0
