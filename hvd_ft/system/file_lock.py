"""Locks of files and directories, with a time limit."""

import fcntl
import time

from hvd_ft.errors import HvdFtError

_LOOK_SECONDS = 0.02


def lock_in_time(descriptor: int, timeout_seconds: float, what: str, remedy: str) -> None:
    """Locks what is open for its opener alone; closing it takes the lock away.

    Args:
        descriptor: of the open file or directory.
        timeout_seconds: how long to wait for others that have the lock.
        what: what is waited for, for the error.
        remedy: what the user can do then.

    Raises:
        HvdFtError: Others had it all the time.
        OSError: The filesystem has no locks.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise HvdFtError(f"waited {timeout_seconds:g} s for {what}: {remedy}") from None
            time.sleep(_LOOK_SECONDS)  # flock() has no timeout
