"""Which CPUs, and which memory, each rank of a host gets: mapped, then bound, as by mpirun. Pure.

*Mapping* decides where a rank is placed: `slot` divides the host's CPUs evenly, with consecutive
ranks beside each other; `numa` and `socket` distribute the ranks over NUMA nodes or sockets in
turn. *Binding* decides which CPUs around this place it may use: its even share (`auto`, as Intel
MPI does), a core, or all of its NUMA node or socket. Its memory is that of the NUMA nodes of these
CPUs.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from hvd_ft.system.topology import Cpu, Topology

BIND_TO = ("auto", "none", "core", "socket", "numa")  # the first one is the default
MAP_BY = ("slot", "numa", "socket")  # likewise


@dataclass(frozen=True)
class Place:
    """The CPUs and memory to which one rank of a host is bound.

    Attributes:
        cpus: numbers of its worker's CPUs; empty: any.
        memory: NUMA nodes of its arena's memory; empty: wherever it is used first.
        agent_cpus: numbers of the CPUs of its agent, with the leader's threads; empty: any.
    """

    cpus: tuple[int, ...] = ()
    memory: tuple[int, ...] = ()
    agent_cpus: tuple[int, ...] = ()


def plan(topology: Topology, ranks: int, bind_to: str, map_by: str) -> list[Place]:
    """Plans the places of a host's ranks.

    Args:
        topology: what the ranks may use of the host.
        ranks: of the host.
        bind_to: of `BIND_TO`.
        map_by: of `MAP_BY`.

    Returns:
        A place for each rank. With more ranks than cores some share one, as evenly as possible.
    """
    if bind_to == "none" or not topology.cpus:
        return [Place()] * ranks
    groups = _groups(topology.cpus, map_by)
    dealt = _deal([len(_cores(group)) for group in groups], ranks)
    bound: list[Sequence[Cpu]] = [()] * ranks
    for number, group in enumerate(groups):
        members = [rank for rank in range(ranks) if dealt[rank] == number]
        for index, rank in enumerate(members):
            bound[rank] = _bind(topology.cpus, group, index, len(members), bind_to)
    taken = {cpu.core for cpus in bound for cpu in cpus}
    spare = [cpu for cpu in topology.cpus if cpu.core not in taken]
    return [
        Place(
            cpus=tuple(cpu.number for cpu in cpus),
            memory=topology.memory_near(cpus) if topology.is_numa else (),
            agent_cpus=tuple(cpu.number for cpu in _for_agent(topology.cpus, spare, cpus)),
        )
        for cpus in bound
    ]


def share_of(cpus: Sequence[Cpu], index: int, ranks: int) -> Sequence[Cpu]:
    """Returns one rank's share of CPUs.

    With more ranks than CPUs, which could not be shared evenly, every rank has all CPUs.

    Args:
        cpus: neighbours next to each other.
        index: of the rank among those that share them.
        ranks: how many share them.
    """
    if ranks <= len(cpus):
        return cpus[index * len(cpus) // ranks : (index + 1) * len(cpus) // ranks]
    return cpus if ranks % len(cpus) else [cpus[index * len(cpus) // ranks]]


def _groups(cpus: Sequence[Cpu], map_by: str) -> list[Sequence[Cpu]]:
    """Returns what ranks are dealt to."""
    if map_by == "slot":
        return [cpus]
    found: dict[int, list[Cpu]] = defaultdict(list)
    for cpu in cpus:
        found[cpu.node if map_by == "numa" else cpu.socket].append(cpu)
    return [found[number] for number in sorted(found)]


def _deal(cores: Sequence[int], ranks: int) -> list[int]:
    """Deals ranks to groups in turn; a group whose cores all have a rank waits for the others.

    Args:
        cores: how many each group has.
        ranks: how many are dealt.

    Returns:
        The group of each rank.
    """
    free, dealt = list(cores), list[int]()
    turn = 0
    while len(dealt) < ranks:
        if not any(free):
            free = list(cores)
        if free[turn]:
            free[turn] -= 1
            dealt.append(turn)
        turn = (turn + 1) % len(cores)
    return dealt


def _cores(cpus: Sequence[Cpu]) -> list[list[Cpu]]:
    found: dict[int, list[Cpu]] = defaultdict(list)
    for cpu in cpus:
        found[cpu.core].append(cpu)
    return list(found.values())


def _bind(
    cpus: Sequence[Cpu], group: Sequence[Cpu], index: int, ranks: int, bind_to: str
) -> Sequence[Cpu]:
    """Returns the CPUs of one of the ranks that were dealt to a group.

    Args:
        cpus: of the host.
        group: of these.
        index: of the rank in the group.
        ranks: how many the group has.
        bind_to: as for `plan`.
    """
    if bind_to == "auto":
        return share_of(group, index, ranks)
    cores = _cores(group)
    core = cores[index * len(cores) // ranks]
    if bind_to == "core":
        return core
    if bind_to == "numa":
        return [cpu for cpu in cpus if cpu.node == core[0].node]
    return [cpu for cpu in cpus if cpu.socket == core[0].socket]


def _for_agent(cpus: Sequence[Cpu], spare: Sequence[Cpu], worker: Sequence[Cpu]) -> Sequence[Cpu]:
    """Returns the CPUs of an agent: on cores without a worker if there are any, near its own.

    Args:
        cpus: of the host.
        spare: of these those on cores without a worker.
        worker: the CPUs of its worker.
    """
    nodes = {cpu.node for cpu in worker}

    def near(some: Sequence[Cpu]) -> list[Cpu]:
        return [cpu for cpu in some if cpu.node in nodes]

    return near(spare) or spare or near(cpus)
