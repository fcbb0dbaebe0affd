"""Determines what MPI supports at run time, and whether a ring can have two endpoints."""

import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hvd_ft.native.mpi import Facts
from hvd_ft.ring.mpi_settings import ENDPOINTS
from hvd_ft.system.say import say

_NO_MULTIPLE_ENDPOINTS = "mlx"
_MOST_CPUS = 1 << 16


def why_one_endpoint(facts: Facts, members: int) -> str:
    """Returns why a ring of this size cannot have two endpoints a member; "" if it can."""
    return why_fewer_endpoints(facts, ENDPOINTS - 1 if members % 2 == 0 else ENDPOINTS)


def why_fewer_endpoints(facts: Facts, endpoints: int) -> str:
    """Returns why this MPI does not give a process so many endpoints; "" if it does."""
    if not facts.multithreaded:
        return "MPI was started without MPI_THREAD_MULTIPLE"
    if facts.endpoints < endpoints:
        return "MPI was started without split threads: call hvd_ft.ring.prepare() before mpi4py"
    if _NO_MULTIPLE_ENDPOINTS in providers():
        return "libfabric's provider mlx has no multiple endpoints: choose another"
    return ""


def why_one_thread(comm: Any) -> str:
    """Returns why two threads a member would be slower on this node; "" if they would not.

    Args:
        comm: An mpi4py communicator of the ring's members; collective.
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
    if count >= 2 * members:
        return ""
    return f"fewer than two CPUs a member: {count} for {members}"


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
    """Prints how a ring whose ranks are not together on their hosts is ordered, and why; once."""
    if order == "hosts":
        say(f"ring: ordered by host: {reason}")
    else:
        say(f"ring: ordered by rank, as order='ranks' asks: {reason}")


@cache
def providers() -> tuple[str, ...]:
    """Returns the libfabric providers that MPI has loaded; empty if it uses shared memory."""
    maps = Path("/proc/self/maps").read_text()
    return tuple(sorted(set(re.findall(r"/lib(\w+)-fi\.so", maps))))


@cache
def say_once(facts: Facts, endpoints: int, why: str) -> None:
    """Prints one line for the user; once in a process for the same findings."""
    kind = Path(facts.file).parent.name
    if kind not in ("release_mt", "debug", "debug_mt"):
        kind = "release"
    fabric = f"libfabric {'+'.join(providers())}" if providers() else "shared memory"
    use = f"{endpoints} endpoint{'s' * (endpoints > 1)} in use"
    say(
        f"ring: {facts.library}, library kind {kind}, {fabric}, {use}"
        + (f" ({why})" if why else "")
    )
