"""The CPUs of a rank: those to which Intel MPI would pin it if it were an MPI process.

Intel MPI pins by default, so stock Horovod's ranks are pinned. It must not pin agents, whose
workers would inherit the agent's CPUs; so agents pin their workers themselves.
"""

import contextlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from hvd_ft.job.placement import Nodes

VARIABLE = "HOROVOD_FT_CPUS"  # in a worker's environment: its CPUs, separated by commas
_SYSTEM = Path("/sys/devices/system/cpu")
_OFF = ("0", "off", "no", "disable")  # as for Intel MPI


def is_wanted(environ: Mapping[str, str]) -> bool:
    """Returns whether to pin ranks: HOROVOD_FT_PIN, otherwise I_MPI_PIN, otherwise yes."""
    said = environ.get("HOROVOD_FT_PIN") or environ.get("I_MPI_PIN") or "1"
    return said.lower() not in _OFF


def environment(rank: int, hosts: Nodes) -> dict[str, str]:
    """Returns the environment variables that pin a worker.

    Args:
        rank: of the worker, on this host.
        hosts: of the job.
    """
    local = hosts.ranks(hosts.node_of(rank))
    share = share_of(_neighbours_together(os.sched_getaffinity(0)), local.index(rank), len(local))
    return {VARIABLE: ",".join(map(str, share))}


def share_of(cpus: Sequence[int], index: int, ranks: int) -> Sequence[int]:
    """Returns one rank's share of a host's CPUs.

    With more ranks than CPUs, which could not be shared evenly, every rank has all CPUs.

    Args:
        cpus: of the host, neighbours next to each other.
        index: of the rank among those of the host.
        ranks: of the host.
    """
    if ranks <= len(cpus):
        return cpus[index * len(cpus) // ranks : (index + 1) * len(cpus) // ranks]
    return cpus if ranks % len(cpus) else [cpus[index * len(cpus) // ranks]]


def pin(environ: Mapping[str, str]) -> None:
    """Pins this process with all its threads, if the worker's environment asks for it.

    Its threads also stop interrupting each other when they wake up: each runs until it waits.
    Otherwise every result that Horovod's thread hands to TensorFlow would interrupt that thread
    (docs/performance.md).
    """
    if cpus := environ.get(VARIABLE):
        for thread in map(int, os.listdir("/proc/self/task")):
            with contextlib.suppress(OSError):  # the thread has ended, or the CPUs were taken away
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
