"""Locks of files and directories, with a time limit."""

import fcntl
import time

from hvd_ft.errors import HvdFtError

_LOOK_SECONDS = 0.02


def lock_in_time(descriptor: int, timeout_seconds: float, what: str, remedy: str) -> None:
    """Locks an open file exclusively; closing it releases the lock.

    Args:
        descriptor: of the open file or directory.
        timeout_seconds: how long to wait for other holders of the lock.
        what: what is waited for, for the error.
        remedy: what the user can do, for the error.

    Raises:
        HvdFtError: The lock was held for the whole time.
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
