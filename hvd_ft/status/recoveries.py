"""Recoveries and checkpoints of a running job, from its events. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from hvd_ft.native.types import Event, EventType
from hvd_ft.reports.report import failures
from hvd_ft.status.snapshot import Checkpoints, Recovery

_MOST = 64
_NS = 1e9


def recoveries(events: Sequence[Event], now_ns: int) -> list[Recovery]:
    """Returns the latest recoveries, in order of time.

    Args:
        events: of the job.
        now_ns: the present, CLOCK_MONOTONIC.
    """
    return [
        Recovery(
            rank=found.rank,
            incarnation=found.incarnation,
            cause=found.cause,
            seconds_ago=max(now_ns - found.failed_ns, 0) / _NS,
            parts={n: s for n, s in found.times.items() if s is not None and n != "total"},
            total_seconds=found.total,
        )
        for found in failures(events)[-_MOST:]
    ]


def checkpoints(events: Sequence[Event], now_ns: int) -> Checkpoints:
    """Returns what the events tell of checkpoints.

    Args:
        events: of the job.
        now_ns: the present, CLOCK_MONOTONIC.
    """
    begun = [e.detail for e in events if e.type is EventType.CHECKPOINT]
    done = [e for e in events if e.type is EventType.CHECKPOINTED]
    return Checkpoints(
        written=len(done),
        under_way=bool(begun) and begun[-1] not in {e.detail for e in done},
        latest_seconds_ago=max(now_ns - done[-1].time_ns, 0) / _NS if done else None,
    )
