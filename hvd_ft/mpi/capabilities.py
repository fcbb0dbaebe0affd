"""Determines what MPI supports at run time, and whether a ring can have two endpoints."""

import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hvd_ft.mpi import fabric
from hvd_ft.native.mpi import Facts
from hvd_ft.system.say import say

_MOST_CPUS = 1 << 16


def why_no_endpoints(facts: Facts, remedy: str = "") -> str:
    """Returns why MPI gives threads no separate endpoints; "" if it does.

    Args:
        facts: MPI's facts; it counts its endpoints itself.
        remedy: The remedy, if MPI could have some.
    """
    if facts.endpoints > 1:
        return ""
    if not facts.multithreaded:
        return "MPI was started without MPI_THREAD_MULTIPLE"
    return fabric.why_no_endpoints(os.environ) or "MPI was started without split threads" + remedy


def why_fewer_endpoints(facts: Facts, endpoints: int) -> str:
    """Returns why this MPI does not give a process that many endpoints; "" if it does."""
    if facts.multithreaded and facts.endpoints >= endpoints:
        return ""
    few = f"MPI was started with {facts.endpoints} endpoints, and {endpoints} are needed"
    return why_no_endpoints(facts) or few


def why_few_cpus(comm: Any, threads: int) -> str:
    """Returns why that many threads per member would be slower on this node; "" if not.

    Args:
        comm: An mpi4py communicator of the ring's members; collective.
        threads: Of each member.
    """
    from mpi4py import MPI

    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    members = node.size
    # All CPUs that any of the members may use, pinned or not.
    cpus = np.zeros(_MOST_CPUS, np.uint8)
    cpus[list(os.sched_getaffinity(0))] = 1
    node.Allreduce(MPI.IN_PLACE, cpus, MPI.MAX)
    node.Free()
    count = int(cpus.sum())
    if count >= threads * members:
        return ""
    few = "two" if threads == 2 else str(threads)
    return f"fewer than {few} CPUs a member: {count} for {members}"


def hosts_of(comm: Any) -> list[int]:
    """Returns for each rank the lowest rank on its host.

    Args:
        comm: An mpi4py communicator; collective.
    """
    from mpi4py import MPI

    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    lowest, hosts = np.array([comm.rank], np.int32), np.empty(comm.size, np.int32)
    node.Allreduce(MPI.IN_PLACE, lowest, MPI.MIN)
    node.Free()
    comm.Allgather(lowest, hosts)
    return [int(host) for host in hosts]


@cache
def say_order_once(order: str, reason: str) -> None:
    """Prints once how a ring is ordered whose ranks are not consecutive on their hosts, and why."""
    if order == "hosts":
        say(f"ring: ordered by host: {reason}")
    else:
        say(f"ring: ordered by rank, as order='ranks' asks: {reason}")


@cache
def providers() -> tuple[str, ...]:
    """Returns the libfabric providers that MPI has loaded; empty if it uses shared memory."""
    maps = Path("/proc/self/maps").read_text(errors="surrogateescape")
    return tuple(sorted(set(re.findall(r"/lib(\w+)-fi\.so", maps))))


@cache
def say_once(facts: Facts, endpoints: int, why: str, rings: int = 1) -> None:
    """Prints one line for the user; once in a process for the same findings.

    Args:
        facts: Of MPI.
        endpoints: In use, in each ring.
        why: Why there are so few, or fewer rings than asked for; or "".
        rings: In use.
    """
    kind = Path(facts.file).parent.name
    if kind not in ("release_mt", "debug", "debug_mt"):
        kind = "release"
    way = f"libfabric {'+'.join(providers())}" if providers() else "shared memory"
    of = f", MPI has {facts.endpoints}" if facts.endpoints > 1 else ""
    use = f"{endpoints} endpoint{'s' * (endpoints > 1)}"
    if rings > 1:
        use = f"{rings} rings with {use} each"
    say(
        f"ring: {facts.library}, library kind {kind}, {way}, {use} in use{of}"
        + (f" ({why})" if why else "")
    )
