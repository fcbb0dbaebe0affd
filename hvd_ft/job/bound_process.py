"""Binds processes of a job to the CPUs that `binding.py` has planned for them.

Intel MPI pins the ranks of stock Horovod. It must not pin agents, whose workers would inherit the
agent's CPUs; so workers and agents are bound here.
"""

import contextlib
import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from hvd_ft.job.binding import Place, plan
from hvd_ft.system.topology import allowed_nodes, read_topology

VARIABLE = "HOROVOD_FT_CPUS"  # in a worker's environment: its CPUs, separated by commas


class Asked(NamedTuple):
    """How ranks are to be bound: values of `binding.BIND_TO` and `binding.MAP_BY`."""

    bind_to: str
    map_by: str


def plan_here(ranks: int, asked: Asked) -> list[Place]:
    """Plans the places of this host's ranks, within what this process may use.

    Args:
        ranks: of this host.
        asked: by the user.
    """
    usable = read_topology().within(os.sched_getaffinity(0), allowed_nodes())
    return plan(usable, ranks, *asked)


def environment(place: Place) -> dict[str, str]:
    """Returns the environment variables that bind a worker; none if it is not to be bound."""
    return {VARIABLE: ",".join(map(str, place.cpus))} if place.cpus else {}


def bind_worker(environ: Mapping[str, str]) -> None:
    """Binds this process with all its threads, if the worker's environment asks for it.

    Its threads also stop interrupting each other when they wake up: each runs until it waits.
    Otherwise every result that Horovod's thread hands to TensorFlow would interrupt that thread
    (docs/performance.md).
    """
    if cpus := environ.get(VARIABLE):
        _bind_threads(map(int, cpus.split(",")), batch=True)


def bind_agent(place: Place) -> None:
    """Binds this agent with the threads that it has by now, and those that they will start."""
    if place.agent_cpus and set(place.agent_cpus) != os.sched_getaffinity(0):
        _bind_threads(place.agent_cpus, batch=False)


def _bind_threads(cpus: Iterable[int], *, batch: bool) -> None:
    allowed = set(cpus)
    for thread in map(int, os.listdir("/proc/self/task")):
        with contextlib.suppress(OSError):  # the thread has ended, or the CPUs were taken away
            os.sched_setaffinity(thread, allowed)
            if batch:
                os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))
