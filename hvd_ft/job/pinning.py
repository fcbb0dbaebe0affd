"""The CPUs of a rank: those that Intel MPI would pin it to if it were MPI's process.

Intel MPI pins by default, and stock Horovod's ranks with it. Our agents it must not pin, for they
would hand that down; so they do it for their workers.
"""

import contextlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from hvd_ft.job.placement import Nodes

VARIABLE = "HOROVOD_FT_CPUS"  # in a worker's environment: its CPUs, with commas between
_SYSTEM = Path("/sys/devices/system/cpu")
_OFF = ("0", "off", "no", "disable")  # as Intel MPI has it


def is_wanted(environ: Mapping[str, str]) -> bool:
    """Tells whether the user wants ranks to be pinned: HOROVOD_FT_PIN, or I_MPI_PIN, or yes."""
    said = environ.get("HOROVOD_FT_PIN") or environ.get("I_MPI_PIN") or "1"
    return said.lower() not in _OFF


def environment(rank: int, hosts: Nodes) -> dict[str, str]:
    """Returns what is added to a worker's environment so that it is pinned.

    Args:
        rank: of the worker, on this host.
        hosts: of the job.
    """
    local = hosts.ranks(hosts.node_of(rank))
    share = share_of(_neighbours_together(os.sched_getaffinity(0)), local.index(rank), len(local))
    return {VARIABLE: ",".join(map(str, share))}


def share_of(cpus: Sequence[int], index: int, ranks: int) -> Sequence[int]:
    """Returns one rank's share of a host's CPUs.

    With more ranks than CPUs, so that some would have to do with less than others, all have all.

    Args:
        cpus: those that are near each other together.
        index: of the rank, among those of the host.
        ranks: of the host.
    """
    if ranks <= len(cpus):
        return cpus[index * len(cpus) // ranks : (index + 1) * len(cpus) // ranks]
    return cpus if ranks % len(cpus) else [cpus[index * len(cpus) // ranks]]


def pin(environ: Mapping[str, str]) -> None:
    """Pins this process, with all threads that it has, if a worker's environment says so.

    On CPUs that they share none of these threads, when it is woken, interrupts another one: each
    runs until it waits. Horovod's would otherwise be interrupted by each result that it hands to
    TensorFlow (docs/performance.md).
    """
    if cpus := environ.get(VARIABLE):
        for thread in map(int, os.listdir("/proc/self/task")):
            with contextlib.suppress(OSError):  # it has ended, or the CPUs were taken away
                os.sched_setaffinity(thread, map(int, cpus.split(",")))
                os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))


def _neighbours_together(cpus: Iterable[int]) -> list[int]:
    """Sorts CPUs by NUMA node, package and core."""

    def number(cpu: int, name: str) -> int:
        try:
            return int((_SYSTEM / f"cpu{cpu}" / "topology" / name).read_text())
        except (OSError, ValueError):
            return 0

    def numa_node(cpu: int) -> int:
        found = (
            re.fullmatch(r"node(\d+)", path.name) for path in (_SYSTEM / f"cpu{cpu}").glob("*")
        )
        return next((int(match[1]) for match in found if match), 0)

    def place(cpu: int) -> tuple[int, ...]:
        return numa_node(cpu), number(cpu, "physical_package_id"), number(cpu, "core_id"), cpu

    return sorted(cpus, key=place)
