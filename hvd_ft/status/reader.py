"""Reads the status of a job from the arena of one of its nodes; changes nothing there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from hvd_ft.job.member_file import read_members
from hvd_ft.job.report_file import read_report_path
from hvd_ft.members.membership import Membership
from hvd_ft.native import logs
from hvd_ft.native.observer import Observer
from hvd_ft.native.types import Event, Left, Status, Times
from hvd_ft.status.lateness import of_ranks
from hvd_ft.status.rates import Rates
from hvd_ft.status.snapshot import (
    Checkpoints,
    JobStatus,
    LogStatus,
    Member,
    NodeMemory,
    RankSnapshots,
    RankStatus,
    RankTimes,
    Recovery,
    Wait,
    state_of,
    step_of,
)
from hvd_ft.status.waits import Progress, waits

_NS = 1e9
_LEFT = {Left.NO: "no", Left.FOR_GOOD: "for good", Left.MAY_RETURN: "may return"}
History = tuple[list[Recovery], Checkpoints]


class Reader:
    """Reads one job again and again.

    Args:
        observer: of the job.
        directory: of the job on this host; its name is the job's id.
        history: makes the recoveries and checkpoints of the job's events; None: they are left out.
    """

    def __init__(
        self,
        observer: Observer,
        directory: str,
        history: Callable[[Sequence[Event], int], History] | None = None,
    ) -> None:
        self._observer = observer
        self._directory = directory
        self._history = history
        self._here = logs.local_ranks(observer)
        self._events: list[Event] = []
        self._others: list[Status] = []  # of other nodes, as read last
        self._news_ns = 0  # of other nodes
        self.rates = Rates()

    def look(self, now_ns: int) -> None:
        """Takes a quick reading: of the steps, and whether there is news of other nodes.

        Args:
            now_ns: the present, CLOCK_MONOTONIC.
        """
        ranks = range(self._observer.size)
        now = {rank: self._observer.status(rank) for rank in ranks}
        self.rates.read(now_ns / _NS, {rank: status.step for rank, status in now.items()})
        others = [status for rank, status in now.items() if rank not in self._here]
        if self._others and others != self._others:
            self._news_ns = now_ns
        self._news_ns = max(self._news_ns, *(s.since_ns for s in others), 0)
        self._others = others

    def read(self, now_ns: int) -> JobStatus:
        """Reads the job's status.

        Args:
            now_ns: the present, CLOCK_MONOTONIC.
        """
        self.look(now_ns)
        observer = self._observer
        members = read_members(self._directory)
        ranks = self._ranks(members, now_ns)
        rates = [rank.steps_per_second for rank in ranks]
        recoveries, checkpoints = self._past(now_ns)
        return JobStatus(
            job=os.path.basename(self._directory),
            state=state_of(ranks),
            date=datetime.now(UTC).isoformat(timespec="milliseconds"),
            host=os.uname().nodename,
            rank_0_here=0 in self._here,
            news_seconds=(now_ns - self._news_ns) / _NS if self._news_ns else None,
            size=observer.size,
            step=step_of(ranks),
            steps_per_second=next((rate for rate in rates if rate is not None), None),
            generation=observer.generation,
            epoch=members.epoch if members else 0,
            members=_members(members),
            ranks=ranks,
            log=LogStatus(ops=observer.log_length, held=observer.log_records),
            memory=self._memory(),
            recoveries=recoveries,
            checkpoints=checkpoints,
            diverged=observer.divergences,
            report=read_report_path(self._directory),
        )

    def _past(self, now_ns: int) -> History:
        if self._history is None:
            return [], Checkpoints()
        read = self._observer.report if 0 in self._here else self._observer.events
        self._events += read(len(self._events))
        return self._history(self._events, now_ns)

    def _ranks(self, members: Membership | None, now_ns: int) -> list[RankStatus]:
        progress = progress_of(self._observer)
        waiting = waits(progress, self._observer.log_length)
        late = of_ranks({rank: self._observer.op_moments(rank) for rank in self._here})
        return [
            msgspec.structs.replace(
                self._rank(rank, progress[rank], waiting, members, now_ns), lateness=late.get(rank)
            )
            for rank in progress
        ]

    def _rank(
        self,
        rank: int,
        progress: Progress,
        waiting: Mapping[int, Wait],
        members: Membership | None,
        now_ns: int,
    ) -> RankStatus:
        status, snapshots = self._observer.status(rank), self._observer.snapshots(rank)
        since = status.since_ns
        return RankStatus(
            rank=rank,
            host=self._host_of(rank, members),
            here=rank in self._here,
            state=progress.state.name.lower(),  # type: ignore[arg-type]
            state_seconds=max(now_ns - since, 0) / _NS if since else 0.0,
            left=_LEFT[progress.left],  # type: ignore[arg-type]
            incarnation=status.incarnation,
            pid=status.pid or None,
            step=status.step,
            steps_per_second=self.rates.of(rank),
            executed=progress.executed,
            contributed=progress.contributed,
            pending=max(progress.pending, 0),
            waits_for=waiting.get(rank),
            times=_times(self._observer.times(rank)),
            snapshots=RankSnapshots(count=snapshots.count, every_steps=snapshots.steps),
        )

    def _host_of(self, rank: int, members: Membership | None) -> str | None:
        if members is not None:
            with contextlib.suppress(StopIteration):
                return members.places[members.place_of(rank)].host
        return os.uname().nodename if rank in self._here else None

    def _memory(self) -> list[NodeMemory]:
        found = []
        for rank in range(self._observer.size):
            now = self._observer.memory(rank)
            most = self._observer.memory(rank, most=True)
            if now and most:
                kinds = {
                    name: getattr(now, name)
                    for name in NodeMemory.__struct_fields__
                    if name not in ("first_rank", "most")
                }
                found.append(NodeMemory(first_rank=rank, most=most.total, **kinds))
        return found


def _times(spent: Times) -> RankTimes:
    return RankTimes(
        compute_seconds=spent.compute_ns / _NS,
        wait_seconds=spent.wait_ns / _NS,
        copy_seconds=spent.copy_ns / _NS,
        network_seconds=spent.network_ns / _NS,
    )


def progress_of(observer: Observer) -> dict[int, Progress]:
    """Reads how far each rank has come."""
    found = {}
    for rank in range(observer.size):
        watch = observer.watch(rank)
        found[rank] = Progress(
            watch.state, watch.pending, watch.executed, watch.contributed, observer.left(rank)
        )
    return found


def _members(members: Membership | None) -> list[Member]:
    return [
        Member(host=place.host, first_rank=place.first, ranks=place.size, leaving=place.leaving)
        for place in (members.places if members else ())
    ]
