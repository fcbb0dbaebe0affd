"""Stops processes, so that they do nothing, and lets them continue."""

import contextlib
import time
from collections.abc import Collection

import psutil

LIMIT_SECONDS = 0.5  # one in an uninterruptible call of the kernel stops as soon as that ends
_LOOK_SECONDS = 0.002
_STILL = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP, psutil.STATUS_ZOMBIE)


def stop_descendants(others: Collection[int] = ()) -> list[psutil.Process]:
    """Stops all descendants of the calling process (SIGSTOP).

    Args:
        others: ids of processes that are stopped too, without their descendants.

    Returns:
        Those that were stopped by this call, for `let_continue`. Others stood still already.
    """
    stopped: dict[int, psutil.Process] = {}
    deadline = time.monotonic() + LIMIT_SECONDS
    # In rounds: before one process stops it may start another.
    while moving := _moving(others):
        for process in moving:
            with contextlib.suppress(psutil.Error):
                process.suspend()
                stopped[process.pid] = process
        if time.monotonic() > deadline:
            break
        time.sleep(_LOOK_SECONDS)  # no event reports that somebody else's child has stopped
    return list(stopped.values())


def let_continue(processes: Collection[psutil.Process]) -> None:
    """Lets processes continue (SIGCONT), those of them that are still alive."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.resume()


def _moving(others: Collection[int]) -> list[psutil.Process]:
    """Returns the processes among these that do not stand still."""
    found = psutil.Process().children(recursive=True)
    for pid in others:
        with contextlib.suppress(psutil.Error):
            found.append(psutil.Process(pid))
    moving = []
    for process in found:
        with contextlib.suppress(psutil.Error):
            if process.status() not in _STILL:
                moving.append(process)
    return moving
