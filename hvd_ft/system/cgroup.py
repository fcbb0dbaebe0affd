"""The memory that the control groups of this process leave it: Linux's, of version 2 or 1.

A process is in a group, and the limits of all groups above count too. In a container, the names of
groups may be those of the host, of which only the innermost is visible, as the root of the cgroup
file system. So directories that do not exist are skipped.

Pure but for the files that `read` reads.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

ROOTS = {2: "/sys/fs/cgroup", 1: "/sys/fs/cgroup/memory"}  # by the version
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
        for version, directory in groups(read("/proc/self/cgroup") or "")
        if (room := _room(read, version, directory)) is not None
    ]
    return min(left, default=None)


def groups(text: str, controller: str = "memory") -> Iterator[tuple[int, str]]:
    """Yields the version and directory of each group that a process is in, the innermost first.

    Args:
        text: of its /proc/PID/cgroup.
        controller: whose groups are meant in version 1, which may have others for each.
    """
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        if number == "0" and not controllers:
            version, root = 2, ROOTS[2]
        elif controller in controllers.split(","):
            version, root = 1, f"{ROOTS[2]}/{controller}"
        else:
            continue
        # A name such as /../x is that of a group outside of what can be seen here.
        parts = [part for part in PurePosixPath(name).parts if part not in ("/", "..")]
        for depth in range(len(parts), -1, -1):
            yield version, "/".join([root, *parts[:depth]])


def limit(read: Read, version: int, directory: str) -> int | None:
    """Returns a group's own limit of memory in bytes; None if it has none."""
    with contextlib.suppress(ValueError):  # "max"
        found = int(read(f"{directory}/{_FILES[version][0]}") or "max")
        return found if found < _NO_LIMIT else None
    return None


def number_in(text: str | None, name: str) -> int | None:
    """Returns the number behind a name in a file of lines of a name and a number; None: none."""
    for line in (text or "").splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.isdecimal():
            return int(value)
    return None


def _room(read: Read, version: int, directory: str) -> int | None:
    most = limit(read, version, directory)
    _, used_file, cache = _FILES[version]
    if most is not None:
        with contextlib.suppress(ValueError):
            used = int(read(f"{directory}/{used_file}") or "")
            cached = number_in(read(f"{directory}/memory.stat"), cache) or 0
            return max(most - max(used - cached, 0), 0)
    return None
