"""A flight record: how far everything had come when a job stood still, or was asked. Plain data.

Each node contributes its part, and each rank its worker's stacks; the launcher puts them together
(launcher/machine/flight_recorder.py). The JSON schema in docs/reference/ is made of these types. A
field may be added within a version of the schema; whatever else changes makes another version.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from hvd_ft.status.snapshot import JobStatus, OpLateness

RECORD_SCHEMA: Literal["hvd_ft.flight_record/1"] = "hvd_ft.flight_record/1"


class _Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of a job."""


class Reason(_Facts, frozen=True):
    """Why there is a record.

    Attributes:
        kind: `stall`, `link`, `stop`, or `asked` (SIGUSR2).
        text: the line that says it.
    """

    kind: Literal["stall", "link", "stop", "asked"]
    text: str


class OpRecord(_Facts, frozen=True):
    """One of the latest ops of the log, on one node.

    Attributes:
        op: its id.
        text: what it is, and the tensors' names, cut off.
        bytes: of its result.
        segments: in which this node's ranks sum it.
        reduced: of these, summed over all ranks.
        gathered: whether nodes gather it; else it goes round the ring.
        contributed: the ranks of this node that have contributed all of their input.
        executed: the ranks of this node that have received its result.
        lateness: how late its ranks came to it; only of the latest 64 ops of each.
    """

    op: int
    text: str
    bytes: int
    segments: int
    reduced: int
    gathered: bool
    contributed: list[int]
    executed: list[int]
    lateness: list[OpLateness] = []


class RankRecord(_Facts, frozen=True):
    """How far a rank has come.

    Attributes:
        rank: its number.
        op: it has contributed its input of all ops before this one.
        segment: and so many segments of this one.
        announced: how often it has announced tensors, over all incarnations.
        coordinator_has_it: whether the coordinator has taken the latest announcement.
    """

    rank: int
    op: int
    segment: int
    announced: int
    coordinator_has_it: bool


class EdgeEnd(_Facts, frozen=True):
    """A node's end of an edge of the ring between nodes.

    Attributes:
        op: all ops before it are through.
        position: segments, or rounds, of this op that are through.
        text: the same in words, with phase and step.
    """

    op: int
    position: int
    text: str


class NodeRecord(_Facts, frozen=True):
    """A node's part of the record.

    Attributes:
        status: as `hvdft status` has it, of this node's ranks only.
        ops: the latest ops, the newest last.
        progress: of this node's ranks.
        sent: to the successor on the ring; null in a job of one node.
        received: from the predecessor; likewise.
    """

    status: JobStatus
    ops: list[OpRecord]
    progress: list[RankRecord]
    sent: EdgeEnd | None
    received: EdgeEnd | None


class Missing(_Facts, frozen=True):
    """A rank whose part is missing.

    Attributes:
        rank: its number.
        host: where it is; "" if that is not known.
        why: the reason.
    """

    rank: int
    host: str
    why: str


class FlightRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record.

    Attributes:
        schema: version of this form.
        job: the job's id.
        date: when it was put together, ISO 8601.
        reasons: why there is one.
        nodes: the parts of nodes, by their first ranks.
        stacks: the Python stacks of each rank's worker, by rank, or why there are none.
        missing: the ranks that did not answer.
    """

    schema: Literal["hvd_ft.flight_record/1"] = RECORD_SCHEMA
    job: str
    date: str
    reasons: list[Reason]
    nodes: list[NodeRecord]
    stacks: dict[str, str]
    missing: list[Missing]
