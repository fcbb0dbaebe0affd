"""Statuses of made-up jobs, for tests of what shows them."""

from typing import Any

import msgspec

from hvd_ft.status.snapshot import (
    Checkpoints,
    JobStatus,
    LogStatus,
    NodeMemory,
    RankSnapshots,
    RankStatus,
    RankTimes,
)


def rank(number: int, **changes: Any) -> RankStatus:
    """Returns the status of a rank that trains, but for some fields."""
    status = RankStatus(
        rank=number,
        host="n0",
        here=True,
        state="running",
        state_seconds=12.0,
        left="no",
        incarnation=0,
        pid=100 + number,
        step=250,
        steps_per_second=12.5,
        executed=500,
        contributed=500,
        pending=0,
        waits_for=None,
        times=RankTimes(
            compute_seconds=6.0, wait_seconds=3.0, copy_seconds=0.75, network_seconds=0.25
        ),
        snapshots=RankSnapshots(count=3, every_steps=10),
    )
    return msgspec.structs.replace(status, **changes)


def job(*ranks: RankStatus, **changes: Any) -> JobStatus:
    """Returns the status of a job of these ranks, but for some fields."""
    memory = dict.fromkeys(NodeMemory.__struct_fields__, 0) | {"total": 1 << 30, "limit": 2 << 30}
    status = JobStatus(
        job="k3j0a1",
        state="running",
        date="2026-01-01T00:00:00+00:00",
        host="n0",
        rank_0_here=True,
        news_seconds=None,
        size=len(ranks),
        step=250,
        steps_per_second=12.5,
        generation=1,
        epoch=0,
        members=[],
        ranks=list(ranks),
        log=LogStatus(ops=500, held=40),
        memory=[NodeMemory(**memory)],
        recoveries=[],
        checkpoints=Checkpoints(),
        diverged=0,
        report=None,
    )
    return msgspec.structs.replace(status, **changes)
