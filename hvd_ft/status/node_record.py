"""Reads a node's part of a flight record from its arena."""

from __future__ import annotations

import time

import msgspec

from hvd_ft.native import logs
from hvd_ft.native.observer import Observer
from hvd_ft.status.flight_record import EdgeEnd, NodeRecord, OpRecord, RankRecord
from hvd_ft.status.lateness import of_op
from hvd_ft.status.reader import Reader, progress_of
from hvd_ft.status.snapshot import OpLateness
from hvd_ft.status.waits import Progress

MOST_OPS = 32
_MOST_TEXT = 400


def read_node(observer: Observer, directory: str) -> NodeRecord:
    """Reads a node's part.

    Args:
        observer: of the job, on this node.
        directory: of the job, on this host.
    """
    status = Reader(observer, directory).read(time.monotonic_ns())
    progress = progress_of(observer)
    here = logs.local_ranks(observer)
    length = observer.log_length
    moments = {rank: observer.op_moments(rank) for rank in here}
    found = (
        _op(observer, op, {rank: progress[rank] for rank in here}, of_op(op, moments))
        for op in range(max(length - MOST_OPS, 0), length)
    )
    return NodeRecord(
        status=msgspec.structs.replace(status, ranks=[rank for rank in status.ranks if rank.here]),
        ops=[op for op in found if op is not None],
        progress=[_rank(observer, rank) for rank in here],
        sent=_end(observer, here.start, sent=True),
        received=_end(observer, here.start, sent=False),
    )


def _op(
    observer: Observer, op: int, here: dict[int, Progress], lateness: list[OpLateness]
) -> OpRecord | None:
    """Returns an op; None if the log has truncated it."""
    of, text = logs.op_progress(observer, op), logs.signature(observer, op)
    if of is None or text is None:
        return None
    return OpRecord(
        op=op,
        text=text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 1] + "…",
        bytes=of.bytes,
        segments=of.segments,
        reduced=of.reduced,
        gathered=of.gathered,
        contributed=[rank for rank, each in here.items() if each.contributed > op],
        executed=[rank for rank, each in here.items() if each.executed > op],
        lateness=lateness,
    )


def _rank(observer: Observer, rank: int) -> RankRecord:
    of = logs.rank_progress(observer, rank)
    return RankRecord(
        rank=rank,
        op=of.op,
        segment=of.segment,
        announced=of.announced // 2,
        coordinator_has_it=of.taken == of.announced,
    )


def _end(observer: Observer, rank: int, *, sent: bool) -> EdgeEnd | None:
    end = logs.ring_end(observer, rank, sent=sent)
    return EdgeEnd(op=end.op, position=end.position, text=str(end)) if end else None
