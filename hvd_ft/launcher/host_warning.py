"""What `hvdft run` says of this host's limits before it starts a job: a line at most."""

from __future__ import annotations

import contextlib
import socket

from hvd_ft.doctor.facts import Limits
from hvd_ft.doctor.finding import WARNING
from hvd_ft.doctor.limit_rules import CHEAP
from hvd_ft.doctor.reading import read_limits
from hvd_ft.launcher.job import Job, ResolvedJob
from hvd_ft.members.hosts import LOCAL_NAMES
from hvd_ft.system.say import say


def warn_of_limits(resolved: ResolvedJob) -> None:
    """Says what of this host's limits will probably hurt a job, if anything; never an error.

    Args:
        resolved: the job.
    """
    ranks = ranks_here(resolved.job)
    with contextlib.suppress(OSError, ValueError):  # the job's own checks say what is wrong
        if ranks and (line := warning(read_limits(ranks, resolved.settings.arena_dir))):
            say(line)


def ranks_here(job: Job) -> int:
    """Returns how many ranks of a job will be on this host, by its usual names."""
    if not job.hosts:
        return job.size
    here = {*LOCAL_NAMES, socket.gethostname()}
    slots = [host.name in here for host in job.hosts for _ in range(host.slots)]
    return sum(slots[: job.size])


def warning(limits: Limits) -> str:
    """Returns the line; "" if there is nothing to say. Pure.

    Args:
        limits: of this host.
    """
    found = [finding for rule in CHEAP if (finding := rule(limits))]
    if not found:
        return ""
    more = f" ({len(found) - 1} more: hvdft check -np {limits.ranks})" if found[1:] else ""
    return f"{WARNING}: {found[0].line}{more}"
