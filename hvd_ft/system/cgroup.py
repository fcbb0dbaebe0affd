"""The memory that the control groups of this process leave it: Linux's, of version 2 or 1.

A process is in a group, and the limits of all groups above count too. In a container the names of
groups may be those of the host, of which only the innermost can be seen, as the root of the file
system of groups; so every directory that is not there is passed over.

Pure but for the files that `read` reads.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

_ROOT = "/sys/fs/cgroup"
_NO_LIMIT = 1 << 60  # what version 1 says without a limit is above
# Limit, use, and the part of the use that is only a cache of files, by the version.
_FILES = {
    2: ("memory.max", "memory.current", "inactive_file"),
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}

Read = Callable[[str], str | None]


def read_text(path: str) -> str | None:
    """Returns a file's contents; None if it is not there or not readable."""
    try:
        return Path(path).read_text(encoding="ascii", errors="replace")
    except OSError:
        return None


def memory_left(read: Read = read_text) -> int | None:
    """Returns the bytes that this process and its group may still take; None without a limit.

    Args:
        read: returns the contents of a file, or None.
    """
    left = [
        room
        for version, directory in _groups(read("/proc/self/cgroup") or "")
        if (room := _room(read, version, directory)) is not None
    ]
    return min(left, default=None)


def _groups(text: str) -> Iterator[tuple[int, str]]:
    """The version and directory of each group that this process is in, the innermost first."""
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        if number == "0" and not controllers:
            version, root = 2, _ROOT
        elif "memory" in controllers.split(","):
            version, root = 1, f"{_ROOT}/memory"
        else:
            continue
        # A name such as /../x is that of a group outside of what can be seen here.
        parts = [part for part in PurePosixPath(name).parts if part not in ("/", "..")]
        for depth in range(len(parts), -1, -1):
            yield version, "/".join([root, *parts[:depth]])


def _room(read: Read, version: int, directory: str) -> int | None:
    limit_file, used_file, cache = _FILES[version]
    with contextlib.suppress(ValueError):  # "max"
        limit = int(read(f"{directory}/{limit_file}") or "max")
        used = int(read(f"{directory}/{used_file}") or "max")
        if limit < _NO_LIMIT:
            return max(limit - max(used - _stat(read, directory, cache), 0), 0)
    return None


def _stat(read: Read, directory: str, name: str) -> int:
    for line in (read(f"{directory}/memory.stat") or "").splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0
