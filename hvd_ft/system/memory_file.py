"""Unnamed files in memory: nothing is left in a directory when a process is killed."""

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def memory_file(text: str = "") -> Iterator[str]:
    """Makes a file that lives as long as the `with` block, and no longer than this process.

    Args:
        text: What is in it.

    Yields:
        Its path, for this process and all others of this user on this host.
    """
    descriptor = os.memfd_create("hvdft")
    try:
        os.fchmod(descriptor, 0o600)
        os.write(descriptor, text.encode())
        yield f"/proc/{os.getpid()}/fd/{descriptor}"
    finally:
        os.close(descriptor)
