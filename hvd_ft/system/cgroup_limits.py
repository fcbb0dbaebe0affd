"""The CPU time and the processes that the control groups of this process leave it.

As in cgroup.py the limits of all groups above count too, of version 2 or 1. Pure but for the files
that `read` reads.
"""

import contextlib
from collections.abc import Iterator

from hvd_ft.system.cgroup import Read, groups, number_in, read_text

_CGROUP = "/proc/self/cgroup"


def cpu_quota(read: Read = read_text) -> float | None:
    """Returns how many CPUs' worth of time this process and its group may take; None: no limit.

    Args:
        read: returns the contents of a file, or None.
    """
    found = []
    for version, directory in groups(read(_CGROUP) or "", "cpu"):
        if version == 2:
            words = (read(f"{directory}/cpu.max") or "").split()
        else:
            names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            words = [(read(f"{directory}/{name}") or "").strip() for name in names]
        with contextlib.suppress(ValueError, ZeroDivisionError):  # "max", or there is none
            quota, period = map(int, words)
            if quota > 0:
                found.append(quota / period)
    return min(found, default=None)


def throttled(read: Read = read_text) -> tuple[int, int]:
    """Returns in how many periods the limit of CPU time has stopped this group, and of how many.

    Args:
        read: returns the contents of a file, or None.
    """
    worst = (0, 0)
    for _, directory in groups(read(_CGROUP) or "", "cpu"):
        text = read(f"{directory}/cpu.stat")
        counts = number_in(text, "nr_throttled"), number_in(text, "nr_periods")
        if counts[0] is not None and counts[1] is not None:
            worst = max(worst, (counts[0], counts[1]))
    return worst


def processes_left(read: Read = read_text) -> int | None:
    """Returns how many processes and threads this process's group may still have; None: no limit.

    Args:
        read: returns the contents of a file, or None.
    """
    return min(_rooms(read), default=None)


def _rooms(read: Read) -> Iterator[int]:
    for _, directory in groups(read(_CGROUP) or "", "pids"):
        with contextlib.suppress(ValueError):  # "max", or there is none
            most = int(read(f"{directory}/pids.max") or "")
            yield max(most - int(read(f"{directory}/pids.current") or ""), 0)
