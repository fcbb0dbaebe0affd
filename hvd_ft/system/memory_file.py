"""Unnamed files in memory: no file is left behind when a process is killed."""

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def memory_file(text: str = "") -> Iterator[str]:
    """Creates a file that exists as long as the `with` block, and no longer than this process.

    Args:
        text: Its contents.

    Yields:
        Its path, valid for all processes of this user on this host.
    """
    descriptor = os.memfd_create("hvdft")
    try:
        os.fchmod(descriptor, 0o600)
        os.write(descriptor, text.encode())
        yield f"/proc/{os.getpid()}/fd/{descriptor}"
    finally:
        os.close(descriptor)
