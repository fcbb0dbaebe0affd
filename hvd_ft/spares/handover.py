"""Finds warm spares, by their sockets in the job's directory, and those that were taken.

Their names tell whether the spare is ready; messages.py defines the messages.
"""

import contextlib
import os
from collections.abc import Iterable

import psutil

PREPARING, READY = "preparing-", "ready-"  # prefix of the sockets' names


def takeable(names: Iterable[str]) -> list[str]:
    """Chooses the sockets of spares from the names in a job's directory, the best first.

    Ready ones come first. A spare that is still importing is better than none: a new process would
    have to import everything from the beginning.
    """
    found = [name for name in names if name.startswith((PREPARING, READY))]
    return sorted(found, key=lambda name: (not name.startswith(READY), name))


def taken_spares(manager: int) -> set[int]:
    """Finds the shims of taken spares among the children that the calling process has got.

    They are known by a process group of their own in the session of their manager.

    Args:
        manager: the process id that their manager had, whose children have come to this process.
    """
    found = set()
    for child in psutil.Process().children():
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(child.pid) == manager and os.getpgid(child.pid) == child.pid:
                found.add(child.pid)
    return found
