"""Removes or names files of earlier jobs on a host when a job begins there."""

import os

from hvd_ft.job.directory import dead_jobs, sweep_stale
from hvd_ft.system.say import say


def clear_leftovers(arena_dir: str, but: str | None = None, *, names_kept: bool = True) -> None:
    """Removes files left by crashed jobs on this host, and reports it.

    Jobs that could be resumed stay, as `hvdft clean` asks before it removes them.

    Args:
        arena_dir: where arenas live.
        but: the id of the job that begins, if it is an earlier one itself.
        names_kept: whether jobs that could be resumed are named.

    Raises:
        HvdFtError: the user's directory is not safe or cannot be locked.
    """
    for dead in sweep_stale(arena_dir, but=but):
        say(f"removed what the crashed job {dead} had left in {arena_dir}")
    for job, kept in dead_jobs(arena_dir).items() if names_kept else ():
        if kept and job != but:
            say(
                f"job {job} could be resumed (hvdft run --resume {job}), and keeps its files in "
                f"{arena_dir} on {os.uname().nodename} until hvdft clean {job} removes them"
            )
