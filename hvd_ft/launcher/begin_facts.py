"""Finds the facts with which a job begins, or with which a resumed job goes on."""

from __future__ import annotations

import contextlib
import os

from hvd_ft.errors import HvdFtError
from hvd_ft.job.directory import job_path
from hvd_ft.job.member_file import read_members
from hvd_ft.job.report_file import has_file
from hvd_ft.launcher.job import ResolvedJob
from hvd_ft.launcher.job_leader import JobLeader
from hvd_ft.launcher.machine.job_facts import JobFacts
from hvd_ft.members.hosts import Host
from hvd_ft.members.leadership import Record
from hvd_ft.members.membership import Membership
from hvd_ft.mpi.variables import bootstrap_of
from hvd_ft.native.observer import Observer


def facts_of(resolved: ResolvedJob, leader: JobLeader | None) -> JobFacts:
    """Returns the facts of a job that begins or is resumed now.

    Args:
        resolved: the job.
        leader: the leadership of this launcher; None: the job can have no other launcher.

    Raises:
        HvdFtError: the job is to be resumed, and this host has no state of it.
    """
    job, settings = resolved.job, resolved.settings
    directory = job_path(settings.arena_dir, job.id)
    first = Membership.first(job.hosts or [Host("localhost", job.size)], job.size)
    record = leader.found if leader and job.resume else None
    return JobFacts(
        id=job.id,
        members=_members(directory, first, record) if job.resume else first,
        hosts=tuple(job.hosts),
        spare_hosts=tuple(job.spare_hosts),
        generation=_generation(job.id, directory, record) if job.resume else 0,
        resume=job.resume,
        led=leader is not None,
        may_shrink=job.limits is not None,
        least_in_place=job.limits.least if job.limits and job.limits.in_place else None,
        warm=bool(job.spares),
        bootstrap=bootstrap_of(resolved.environment),
        records=has_file(job.report),
        pid=os.getpid(),
    )


def _members(directory: str, first: Membership, record: Record | None) -> Membership:
    """Returns the latest known membership of a job that has left its state."""
    found = [read_members(directory)]
    if record:
        with contextlib.suppress(ValueError):
            found.append(Membership.parse(record.members))
    known = [members for members in found if members and members.size == first.size]
    return max(known, key=lambda members: members.epoch, default=first)


def _generation(job: str, directory: str, record: Record | None) -> int:
    """Returns the number of the next generation of agents."""
    if record:
        return record.generation + 1
    try:
        observer = Observer(directory)
    except HvdFtError as error:
        raise HvdFtError(
            f"job {job} cannot be resumed from this host ({error}): give --resume the id of a job "
            "that was ended because of a lost host, on one of its hosts"
        ) from None
    try:
        return observer.generation + 1
    finally:
        observer.close()
