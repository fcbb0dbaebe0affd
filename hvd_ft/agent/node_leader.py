"""The leaders of a job's nodes: which agents lead, with how many endpoints, and how they finish."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hvd_ft.agent.ablation import ablates_network
from hvd_ft.agent.job_context import JobContext
from hvd_ft.agent.rendezvous import Rendezvous
from hvd_ft.agent.supervisor import leave_seconds
from hvd_ft.job.lifeline_messages import NodeFacts
from hvd_ft.job.placement import Nodes
from hvd_ft.job.settings import Settings
from hvd_ft.mpi.environment import connections_of, endpoints_for
from hvd_ft.native import logs
from hvd_ft.native.observer import Observer
from hvd_ft.native.types import OpRules

if TYPE_CHECKING:
    from hvd_ft.native.mpi import Leader

_THREADS = 3  # of a leader, unless fewer are asked for
_LEAVE_SECONDS = 10.0


@dataclass(frozen=True)
class Endpoints:
    """What leaders use.

    Attributes:
        threads: 3: for sending, receiving and the mirror; 2: for the ring and the mirror; 1: for
            everything.
        connections: number of connections of each edge of the ring, each with its own endpoint.
        why: why there are fewer than 3 threads, or fewer connections than asked for; otherwise "".
    """

    threads: int
    connections: int
    why: str

    @property
    def in_use(self) -> int:
        """Number of endpoints that a leader uses: for its edges, the mirror and gathered ops."""
        return self.threads if self.threads < _THREADS else 2 * self.connections + 2


def op_rules(settings: Settings) -> OpRules:
    """Returns what the op log is to say of each op: how it is done."""
    return OpRules(
        node_segment=settings.node_segment_bytes,
        most_gathered=settings.gather_bytes,
        ring_segment=settings.ring_segment_bytes,
        ablates_network=ablates_network(settings),
    )


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
    from hvd_ft.mpi import capabilities  # loads MPI, which takes time
    from hvd_ft.native import mpi

    facts = mpi.facts()
    lack = capabilities.why_no_endpoints(facts)
    asked = [settings.endpoints, settings.connections, settings.nodes_below]
    mine = [asked, facts.endpoints, lack, sorted(os.sched_getaffinity(0))]
    told = rendezvous.exchange("the choice of the leaders' endpoints", mine)
    # All take rank 0's settings, whatever their own, and what MPI has everywhere.
    *of_endpoints, nodes_below = told[0][0]
    endpoints = choose_endpoints(
        *of_endpoints,
        available=min(has for _, has, _, _ in told),
        lack=next((lack for _, _, lack, _ in told if lack), ""),
        few_cpus=why_few_cpus(context.hosts, nodes, [cpus for *_, cpus in told]),
    )
    communicator = rendezvous.leaders(rendezvous.rank in nodes.firsts)
    if communicator is None:
        return None
    if rendezvous.rank == 0 and context.launch.generation == 0:
        capabilities.say_once(facts, endpoints.in_use, endpoints.why)
    leader = mpi.Leader(
        context.arenas,
        context.job,
        context.rank,
        nodes.bounds,
        communicator,
        options=mpi.LeaderOptions(
            endpoints.threads,
            endpoints.connections,
            settings.transfers,
            nodes_below,
            round(settings.yield_seconds * 1e9),
            round(settings.nap_seconds * 1e9),
        ),
        rules=op_rules(settings),
    )
    return leader


def choose_endpoints(
    asked: str, connections: int, *, available: int, lack: str, few_cpus: str
) -> Endpoints:
    """Chooses what leaders use; pure.

    Args:
        asked: HOROVOD_FT_ENDPOINTS.
        connections: HOROVOD_FT_CONNECTIONS.
        available: number of endpoints that MPI reports.
        lack: why MPI gives threads no separate endpoints; "" if it does.
        few_cpus: why a thread for each part would be slower; "" if it would not.
    """
    why = "HOROVOD_FT_ENDPOINTS is 1" if asked == "1" else lack
    why = why or (few_cpus if asked == "auto" else "")
    if why:
        return Endpoints(1, 1, why)
    possible = connections_of(available)
    if asked == "2" and possible:
        return Endpoints(2, 1, "HOROVOD_FT_ENDPOINTS is 2")
    if connections > possible:
        needed = endpoints_for(connections)
        why = f"MPI was started with {available} endpoints, and {needed} are needed"
    return Endpoints(_THREADS if possible else 1, max(min(connections, possible), 1), why)


def why_few_cpus(hosts: Nodes, nodes: Nodes, cpus: Sequence[Sequence[int]]) -> str:
    """Returns why leaders use a single thread and endpoint; "" if each part has its own.

    Threads that share a CPU wait for each other, and small ops wait for all of them: with one
    thread small ops take a quarter to a half less time (docs/performance.md).

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
) -> Callable[[], NodeFacts | None]:
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

    def facts() -> NodeFacts:
        end = logs.ring_end(observer, rank, sent=False)
        counts = [(*end, *counts) for end, counts in links().items()]
        return NodeFacts(context.launch.generation, node, name, counts, str(end) if end else "")

    return facts


def finalize(rendezvous: Rendezvous, leader: "Leader | None", settings: Settings) -> None:
    """Waits until all agents know that the job is over, and all nodes have received every event.

    Args:
        rendezvous: of all agents.
        leader: of the node, if this agent is it.
        settings: of the user.
    """
    rendezvous.begin_end(leave_seconds(settings))
    rendezvous.exchange("the end of the job", None)
    # A job that is stopped may have an op under way.
    closed = leader is None or leader.close(_LEAVE_SECONDS)
    rendezvous.nothing_under_way = all(rendezvous.exchange("the end of the nodes' leaders", closed))
