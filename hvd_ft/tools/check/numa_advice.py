"""Problems in the placement of a job's processes and their memory. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from hvd_ft.system.topology import Topology
from hvd_ft.tools.check.placed import AGENT, WORKER, Placed

_HARMLESS = ("default", "bind", "local")  # policies: memory comes from the CPU's own node, if any
_MUCH_BYTES = 16 << 20  # what libraries share lies wherever it was loaded first
_FAR_SHARE = 0.25  # of a rank's memory


def advice(
    topology: Topology,
    jobs: Sequence[Placed],
    *,
    policy: str,
    environ: Mapping[str, str],
) -> list[str]:
    """Returns the problems, one line each, with a remedy.

    Args:
        topology: the topology of this host.
        jobs: the processes of a job, or none.
        policy: the memory policy of processes started here, in Linux's words.
        environ: the environment of processes started here.
    """
    workers = [process for process in jobs if process.role == WORKER]
    found = [
        *_policies(policy, workers),
        *_shared_cores(topology, workers),
        *_leaders(topology, jobs),
        *_other_binding(environ),
    ]
    if topology.is_numa:
        found += [*_over_nodes(topology, workers), *_far_memory(topology, workers)]
    return found


def _named(ranks: Iterable[int]) -> str:
    words = [str(rank) for rank in sorted(ranks)]
    return f"rank {words[0]}" if len(words) == 1 else f"ranks {', '.join(words)}"


def _listed(values: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(values)))


def _policies(here: str, workers: Sequence[Placed]) -> list[str]:
    found = {worker.policy: "" for worker in workers} | {here: "here"}
    lines = []
    for policy, where in found.items():
        if policy.partition(":")[0] in (*_HARMLESS, "unknown"):
            continue
        whose = where or "of " + _named(w.rank for w in workers if w.policy == policy)
        lines.append(
            f"the memory policy {whose} is {policy}, neither default nor bind: memory does not lie "
            "where it is used; leave numactl out"
        )
    return lines


def _over_nodes(topology: Topology, workers: Sequence[Placed]) -> list[str]:
    spread = {worker.rank: topology.nodes_of(worker.cpus) for worker in workers}
    ranks = [rank for rank, nodes in spread.items() if len(nodes) > 1]
    if not ranks:
        return []
    nodes = set[int]().union(*(spread[rank] for rank in ranks))
    return [
        f"{_named(ranks)} may run on several NUMA nodes ({_listed(nodes)}), and leave their memory "
        "behind: give --bind-to numa, or --map-by numa"
    ]


def _far_memory(topology: Topology, workers: Sequence[Placed]) -> list[str]:
    lines = []
    for worker in workers:
        near = topology.memory_near(cpu for cpu in topology.cpus if cpu.number in worker.cpus)
        for what, held in (("own memory", worker.own), ("input area and snapshots", worker.area)):
            far = {node: size for node, size in held.items() if node not in near}
            much = sum(far.values()) > _FAR_SHARE * sum(held.values())
            if far and much and (sum(far.values()) > _MUCH_BYTES or held is worker.area):
                lines.append(
                    f"rank {worker.rank} runs on NUMA node {_listed(near)}, but "
                    f"{sum(far.values()) >> 20} of the {sum(held.values()) >> 20} MiB of its "
                    f"{what} lie on node {_listed(far)}: bind it from its start, with --bind-to"
                )
    return lines


def _free_cores(topology: Topology, workers: Sequence[Placed]) -> set[int]:
    taken = {core for worker in workers for core in topology.cores_of(worker.cpus)}
    return {cpu.core for cpu in topology.cpus} - taken


def _shared_cores(topology: Topology, workers: Sequence[Placed]) -> list[str]:
    """Ranks that have only a core that others have too, while there are cores without any."""
    ranks_on: dict[int, list[int]] = {}
    for worker in workers:
        cores = topology.cores_of(worker.cpus)
        if len(cores) == 1:
            ranks_on.setdefault(cores.pop(), []).append(worker.rank)
    free = _free_cores(topology, workers)
    return [
        f"{_named(ranks)} share the core of CPU {core}, while the cores of CPUs {_listed(free)} "
        "have no rank: have one launcher bind the ranks, and run one job on a host"
        for core, ranks in sorted(ranks_on.items())
        if free and len(ranks) > 1
    ]


def _leaders(topology: Topology, jobs: Sequence[Placed]) -> list[str]:
    """Threads of endpoints that can run only where workers do, while there are other cores."""
    workers = [process for process in jobs if process.role == WORKER]
    free = _free_cores(topology, workers)
    lines = []
    for agent in jobs:
        names = [
            thread.name
            for thread in agent.leader_threads
            # If it has slept since it was bound, it was last where it may not run any more.
            if free
            and thread.last_cpu in thread.cpus
            and not topology.cores_of([thread.last_cpu]) & free
        ]
        if agent.role == AGENT and names:
            lines.append(
                f"{', '.join(names)} of rank {agent.rank}'s agent ran on a worker's core, while "
                f"the cores of CPUs {_listed(free)} have no worker: give --bind-to core, which "
                "keeps them apart"
            )
    return lines


def _other_binding(environ: Mapping[str, str]) -> list[str]:
    domain = environ.get("I_MPI_PIN_DOMAIN")
    if not domain or domain.lower() in ("auto", "core", "numa", "socket", "sock"):
        return []
    return [
        f"I_MPI_PIN_DOMAIN={domain} is for MPI processes, which workers are not: it has no effect; "
        "give --bind-to"
    ]
