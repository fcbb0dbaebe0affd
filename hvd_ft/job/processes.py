"""Finds the processes of a job by the job's id in their environment, and ends them."""

import contextlib
import os
import time

import psutil

from hvd_ft.system.pidfd import await_all
from hvd_ft.system.say import say

_EXECVE_SECONDS = 0.005  # longer than a new program takes to have its environment
KILL_LIMIT_SECONDS = 10.0  # for processes to be gone after SIGKILL


def job_processes(job_id: str) -> list[psutil.Process]:
    """Finds this user's processes of a job."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if (
                process.pid != os.getpid()
                and process.status() != psutil.STATUS_ZOMBIE
                and _environ(process).get("HOROVOD_FT_JOB") == job_id
            ):
                found.append(process)
    return found


def _environ(process: psutil.Process) -> dict[str, str]:
    """Returns the environment; it is empty during an execve, and for kernel threads."""
    environ = process.environ()
    if not environ and process.exe():
        time.sleep(_EXECVE_SECONDS)  # its end is not reported by any event
        environ = process.environ()
    return dict(environ)


def end_rank(job_id: str, rank: int) -> None:
    """Kills what is left of a rank's worker, and waits until that is dead."""
    left = []
    for process in job_processes(job_id):
        with contextlib.suppress(psutil.Error):
            if process.environ().get("HOROVOD_RANK") == str(rank):
                process.kill()
                left.append(process)
    await_all(left, time.monotonic() + KILL_LIMIT_SECONDS)


def end_older(job_id: str, generation: int) -> None:
    """Kills what agents of older generations have left on this host, and waits until it is dead.

    Args:
        job_id: of the job.
        generation: of the present agents.
    """
    left = []
    for process in job_processes(job_id):
        with contextlib.suppress(psutil.Error):
            theirs = process.environ().get("HOROVOD_FT_GENERATION", "")
            if theirs.isdecimal() and int(theirs) < generation:
                process.kill()
                left.append(process)
    await_all(left, time.monotonic() + KILL_LIMIT_SECONDS)


def end_processes(job_id: str, patience_seconds: float) -> None:
    """Waits for a job's processes to end by themselves, then kills the rest.

    Processes that are not gone 10 s after the first SIGKILL are named on stderr.

    Args:
        job_id: Of the job.
        patience_seconds: How long to wait, for all of them together.
    """
    await_all(job_processes(job_id), time.monotonic() + patience_seconds)
    deadline = time.monotonic() + KILL_LIMIT_SECONDS
    # A process may have started another one before it was killed, so repeat until there is none.
    while (left := job_processes(job_id)) and time.monotonic() < deadline:
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        await_all(left, deadline)
    if left:
        unkillable = [process.pid for process in left]
        say(f"processes {unkillable} do not die of SIGKILL: look for them with ps")
