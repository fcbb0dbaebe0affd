"""Reads what this host leaves a job. Everything is read from the kernel; nothing is started."""

import os
import resource

import psutil

from hvd_ft.doctor.facts import Limits
from hvd_ft.system import cgroup, cgroup_limits
from hvd_ft.system.memory_left import FILESYSTEM, HOST, memory_left

_ROOT = 0


def read_limits(ranks: int, arena_dir: str) -> Limits:
    """Reads what this host leaves a job; takes about a millisecond.

    Args:
        ranks: that are to run here.
        arena_dir: where arenas will be; it exists.

    Raises:
        OSError: The arena directory cannot be used.
    """
    left = {each.of: each.bytes for each in memory_left(arena_dir)}
    stopped, periods = cgroup_limits.throttled()
    return Limits(
        ranks=ranks,
        cpus=len(os.sched_getaffinity(0)),
        cpu_quota=cgroup_limits.cpu_quota(),
        throttled=stopped,
        periods=periods,
        open_files=_most(resource.RLIMIT_NOFILE),
        processes=_processes_left(),
        group_processes=cgroup_limits.processes_left(),
        memory=psutil.virtual_memory().available,
        group_memory=cgroup.memory_left(),
        arena_dir=arena_dir,
        arena=left[FILESYSTEM],
        arena_in_memory=HOST in left,
    )


def _most(kind: int) -> int | None:
    _, hard = resource.getrlimit(kind)
    return None if hard == resource.RLIM_INFINITY else hard


def _processes_left() -> int | None:
    """Returns what the user's limit leaves; the kernel does not hold root to it.

    How many the user has already is not counted, which would take long on a large host.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    return None if os.geteuid() == _ROOT or soft == resource.RLIM_INFINITY else soft
