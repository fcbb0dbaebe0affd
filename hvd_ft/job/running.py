"""Finds a job that runs on this node, by its id or its directory."""

import os
from pathlib import Path

from hvd_ft.errors import HvdFtError
from hvd_ft.job.directory import job_path, user_path
from hvd_ft.job.settings import Settings


def find_job(job: str | None) -> str:
    """Returns the directory of a job that runs on this node.

    Args:
        job: its id or its directory; None: the only job running here.

    Raises:
        HvdFtError: there is no such job, or several without one being named.
    """
    arena_dir = Settings.from_env(os.environ).arena_dir
    if job is None:
        jobs = running_jobs(arena_dir)
        if len(jobs) != 1:
            found = ", ".join(jobs) if jobs else "none"
            raise HvdFtError(
                f"which job? Running on this node with arenas in {arena_dir}: {found}; give its id "
                "or its directory"
            )
        job = jobs[0]
    directory = job if os.sep in job else job_path(arena_dir, job)
    try:
        there = Path(directory, "node.arena").is_file()
    except PermissionError:
        raise HvdFtError(
            f"{directory} is not yours, so job {job} cannot be read: ask as the user who runs it"
        ) from None
    if not there:
        raise HvdFtError(
            f"there is no job {job}: {directory} has no node.arena; it is there while the job runs"
            "; give the id of one that runs on this host (of one that is over hvdft report shows "
            "the report, if it was run with --report FILE)"
        )
    return os.path.realpath(directory)


def running_jobs(arena_dir: str) -> list[str]:
    """Returns the ids of this user's jobs on this node, sorted."""
    return sorted(path.parent.name for path in Path(user_path(arena_dir)).glob("*/node.arena"))
