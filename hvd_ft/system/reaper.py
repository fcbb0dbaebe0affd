"""Kills and reaps all descendants of a process."""

import contextlib
import time
from collections.abc import Callable, Collection

import psutil

from hvd_ft.system.pidfd import await_one

TIMEOUT_SECONDS = 5.0


def kill_descendants(reap: Callable[[], object], spared: Collection[int] = ()) -> list[int]:
    """Kills all descendants of the calling process, which has to be a subreaper.

    Args:
        reap: reaps the dead children, without waiting.
        spared: children that stay alive, with all of their descendants.

    Returns:
        The ids of processes that did not die within 5 s; normally none.
    """
    deadline = time.monotonic() + TIMEOUT_SECONDS
    # In rounds: while one process is being killed another one may start a third.
    while living := _descendants(spared):
        for process in living:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if not await_one(living, deadline - time.monotonic()):
            return [process.pid for process in living]
        reap()
    return []


def _descendants(spared: Collection[int]) -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children():
        if child.pid not in spared:
            with contextlib.suppress(psutil.NoSuchProcess):
                found += [child, *child.children(recursive=True)]
    return found
