"""How much memory this machine can still give to files in a directory."""

import os
from collections.abc import Sequence
from typing import NamedTuple

import psutil

from hvd_ft.system import cgroup

_IN_MEMORY = ("tmpfs", "ramfs", "hugetlbfs")


class Left(NamedTuple):
    """The memory that one source has left.

    Attributes:
        of: one of `FILESYSTEM`, `HOST`, `CGROUP`.
        bytes: how many it has left.
    """

    of: str
    bytes: int


FILESYSTEM, HOST, CGROUP = "filesystem", "host", "cgroup"


def memory_left(directory: str) -> list[Left]:
    """Returns what is left in every source of memory for files in a directory.

    For a directory on a disk this is only the disk, as written data leaves memory again.

    Args:
        directory: exists.
    """
    stat = os.statvfs(directory)
    left = [Left(FILESYSTEM, stat.f_bavail * stat.f_frsize)]
    kinds = [(part.mountpoint, part.fstype) for part in psutil.disk_partitions(all=True)]
    if is_in_memory(os.path.realpath(directory), kinds):
        left.append(Left(HOST, psutil.virtual_memory().available))
        group = cgroup.memory_left()
        if group is not None:
            left.append(Left(CGROUP, group))
    return left


def is_in_memory(path: str, mounts: Sequence[tuple[str, str]]) -> bool:
    """Returns whether a path is on a file system that lies in memory.

    Args:
        path: absolute, without links.
        mounts: directory and kind of each file system, in the order in which they were mounted.
    """
    kind = ""
    longest = -1
    for directory, its_kind in mounts:
        inside = path == directory or path.startswith(directory.rstrip("/") + "/")
        if inside and len(directory) >= longest:
            longest, kind = len(directory), its_kind
    return kind in _IN_MEMORY
