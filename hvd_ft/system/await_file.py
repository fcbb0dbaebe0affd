"""Waits for a file, such as a spare's socket: for scripts of tests and experiments."""

import fcntl
import os
import select
import signal
import time
from pathlib import Path


def await_file(path: Path, timeout_seconds: float) -> bool:
    """Waits until a file exists; call it in the main thread. SIGIO is ignored afterwards.

    Args:
        path: Of the file; its directory has to exist.
        timeout_seconds: How long at most.

    Returns:
        Whether the file exists.
    """
    deadline = time.monotonic() + timeout_seconds
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    # Python's handler writes to the pipe, whichever thread receives the signal.
    signal.signal(signal.SIGIO, lambda *_: None)
    wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        names = fcntl.DN_CREATE | fcntl.DN_RENAME | fcntl.DN_MULTISHOT
        fcntl.fcntl(directory, fcntl.F_NOTIFY, names)
        while not path.exists():
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([reader], [], [], left)[0]:
                return path.exists()
            os.read(reader, 4096)
        return True
    finally:
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGIO, signal.SIG_IGN)  # one may be pending, and by default it kills
        for descriptor in (directory, reader, writer):
            os.close(descriptor)
