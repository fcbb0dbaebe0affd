"""The leaders of a job's nodes: which agents lead, with how many endpoints, and how they finish."""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hvd_ft.agent.ablation import ablates_network
from hvd_ft.agent.job_context import JobContext
from hvd_ft.agent.rendezvous import Rendezvous
from hvd_ft.job.placement import Nodes
from hvd_ft.native import logs
from hvd_ft.native.observer import Observer

if TYPE_CHECKING:
    from hvd_ft.native.mpi import Leader

_THREADS = 3  # of a leader, unless one serves for everything
_ENDPOINTS = 4  # each thread has its own, and the one that receives another for gathered ops
_LEAVE_SECONDS = 10.0


def lead(rendezvous: Rendezvous, context: JobContext) -> "Leader | None":
    """Makes the leader of a node, in the agent of its first rank. Collective.

    Args:
        rendezvous: of all agents.
        context: this agent's place in the job.

    Returns:
        The leader, or None where this agent does not lead.
    """
    nodes, settings = context.nodes, context.settings
    if len(nodes) == 1:
        return None
    mine = [settings.endpoints, sorted(os.sched_getaffinity(0))]
    told = rendezvous.exchange("the choice of the leaders' endpoints", mine)
    asked = told[0][0]  # all take rank 0's value, whatever their own settings
    why = "HOROVOD_FT_ENDPOINTS is 1" if asked == "1" else ""
    if asked == "auto":
        why = why_one_endpoint(context.hosts, nodes, [cpus for _, cpus in told])
    communicator = rendezvous.leaders(rendezvous.rank in nodes.firsts)
    if communicator is None:
        return None
    from hvd_ft.native import mpi
    from hvd_ft.ring import mpi_facts  # loads MPI, which takes time

    if rendezvous.rank == 0 and settings.generation == 0:
        mpi_facts.say_once(mpi.facts(), 1 if why else _ENDPOINTS, why)
    leader = mpi.Leader(
        context.arenas,
        context.job,
        context.rank,
        nodes.firsts,
        communicator,
        one_endpoint=bool(why),
        most_gathered=settings.gather_bytes,
        ring_segment=settings.ring_segment_bytes,
        ablates_network=ablates_network(settings),
    )
    leader.set_waits(settings.yield_seconds, settings.nap_seconds)
    return leader


def why_one_endpoint(hosts: Nodes, nodes: Nodes, cpus: Sequence[Sequence[int]]) -> str:
    """Returns why leaders use a single thread and endpoint; "" where each part has its own.

    Threads without a CPU of their own wait for each other, and small ops wait for all of them: with
    one thread small ops take a quarter to a half less time (docs/performance.md).

    Args:
        hosts: the ranks of each host.
        nodes: the members of the ring.
        cpus: the CPUs that each rank's agent may use.
    """
    for host in range(len(hosts)):
        ranks = hosts.ranks(host)
        leaders = len(set(nodes.firsts) & set(ranks))
        count = len({cpu for rank in ranks for cpu in cpus[rank]})
        if count < len(ranks) + _THREADS * leaders:
            return f"{count} CPUs for {len(ranks)} ranks on the host of rank {ranks[0]}"
    return ""


def node_facts(
    leader: "Leader | None", observer: Observer, context: JobContext
) -> Callable[[], Any]:
    """Returns the state of a node's links, for link_watch.py; None without a leader.

    Args:
        leader: of the node, if this agent is it.
        observer: of the job.
        context: this agent's place in the job.
    """
    if leader is None:
        return lambda: None
    rank, nodes = context.rank, context.nodes
    node = nodes.node_of(rank)
    name = f"rank {rank}" if len(nodes) > len(context.hosts) else os.uname().nodename
    links = leader.links

    def facts() -> Any:
        end = logs.ring_end(observer, rank, sent=False)
        counts = [[*end, *counts] for end, counts in links().items()]
        stands = str(end) if end else ""
        whose = {"generation": context.settings.generation, "node": node, "name": name}
        return {**whose, "links": counts, "stands": stands}

    return facts


def finalize(rendezvous: Rendezvous, leader: "Leader | None") -> None:
    """Waits until all agents know that the job is over, and all nodes have received every event."""
    rendezvous.exchange("the end of the job", None)
    # A job that is stopped may have an op under way.
    closed = leader is None or leader.close(_LEAVE_SECONDS)
    rendezvous.nothing_under_way = all(rendezvous.exchange("the end of the nodes' leaders", closed))
