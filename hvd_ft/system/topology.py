"""The CPUs and the memory of a machine: NUMA nodes, sockets and cores, as Linux describes them.

Pure but for the files that `read` reads.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from hvd_ft.system.cgroup import read_text
from hvd_ft.system.spans import span_numbers

_NODES = "/sys/devices/system/node"
_CPUS = "/sys/devices/system/cpu"

Read = Callable[[str], str | None]


@dataclass(frozen=True)
class Cpu:
    """A CPU in Linux's sense: a hyperthread if a core has several.

    Attributes:
        number: its own.
        node: number of its NUMA node.
        socket: number of its package.
        core: the lowest number of a CPU of its core.
    """

    number: int
    node: int = 0
    socket: int = 0
    core: int = 0


@dataclass(frozen=True)
class Topology:
    """What a process may use of a machine.

    Attributes:
        cpus: neighbours next to each other: by NUMA node, socket and core.
        memory: bytes of each NUMA node that has memory; empty if the kernel has no NUMA.
        distances: from each NUMA node to each one of the machine, by their numbers.
    """

    cpus: tuple[Cpu, ...] = ()
    memory: Mapping[int, int] = field(default_factory=dict)
    distances: Mapping[int, Mapping[int, int]] = field(default_factory=dict)

    @property
    def is_numa(self) -> bool:
        """Whether it matters where memory lies."""
        return len(self.memory) > 1

    def within(self, cpus: Collection[int], nodes: Collection[int]) -> "Topology":
        """Returns the part of it for a process with these CPUs and memory nodes."""
        unknown = set(cpus) - {cpu.number for cpu in self.cpus}  # where Linux describes nothing
        return replace(
            self,
            cpus=(
                *(cpu for cpu in self.cpus if cpu.number in cpus),
                *(Cpu(number, core=number) for number in sorted(unknown)),
            ),
            memory={node: size for node, size in self.memory.items() if node in nodes},
        )

    def nodes_of(self, cpus: Collection[int]) -> set[int]:
        """Returns the NUMA nodes of some CPUs, by their numbers; of unknown ones none."""
        return {cpu.node for cpu in self.cpus if cpu.number in cpus}

    def cores_of(self, cpus: Collection[int]) -> set[int]:
        """Returns the cores of some CPUs, by their numbers; of unknown ones none."""
        return {cpu.core for cpu in self.cpus if cpu.number in cpus}

    def memory_near(self, cpus: Iterable[Cpu]) -> tuple[int, ...]:
        """Returns the NUMA nodes whose memory is nearest to some of these CPUs."""
        nodes = {cpu.node for cpu in cpus} if self.memory else set()
        return tuple(sorted({self._nearest(node) for node in nodes}))

    def _nearest(self, node: int) -> int:
        far = self.distances.get(node, {})
        return min(self.memory, key=lambda other: (other != node, far.get(other, 0), other))


def numbers(text: str | None) -> list[int]:
    """Returns the numbers of one of Linux's lists, such as `0-3,8`; none if it is not a list."""
    found: list[int] = []
    for word in (text or "").strip().split(","):
        try:
            found += span_numbers(word)
        except ValueError:
            return []
    return found


def read_topology(read: Read = read_text) -> Topology:
    """Reads what Linux describes of this machine, whatever this process may use of it.

    Args:
        read: returns the contents of a file, or None.
    """
    nodes = numbers(read(f"{_NODES}/online"))
    node_of = {cpu: node for node in nodes for cpu in numbers(read(f"{_NODES}/node{node}/cpulist"))}

    def place(number: int) -> tuple[tuple[int, int, int, int, int], Cpu]:
        def fact(name: str) -> int:
            return next(iter(numbers(read(f"{_CPUS}/cpu{number}/topology/{name}"))), 0)

        siblings = numbers(read(f"{_CPUS}/cpu{number}/topology/thread_siblings_list"))
        core = min([number, *siblings])
        cpu = Cpu(number, node_of.get(number, 0), fact("physical_package_id"), core)
        return (cpu.node, cpu.socket, fact("core_id"), core, number), cpu

    sizes = {node: _memory_bytes(read(f"{_NODES}/node{node}/meminfo")) for node in nodes}
    return Topology(
        cpus=tuple(cpu for _, cpu in sorted(map(place, numbers(read(f"{_CPUS}/online"))))),
        memory={node: size for node, size in sizes.items() if size},
        distances={
            node: dict(zip(nodes, _words(read(f"{_NODES}/node{node}/distance")), strict=False))
            for node in nodes
        },
    )


def allowed_nodes(read: Read = read_text) -> list[int]:
    """Returns the NUMA nodes from which this process may have memory."""
    for line in (read("/proc/self/status") or "").splitlines():
        name, _, value = line.partition(":")
        if name == "Mems_allowed_list":
            return numbers(value)
    return []


def _memory_bytes(meminfo: str | None) -> int:
    for line in (meminfo or "").splitlines():  # Node 0 MemTotal:  2028720 kB
        words = line.split()
        if words[2:3] == ["MemTotal:"] and words[3].isdecimal():
            return int(words[3]) << 10
    return 0


def _words(text: str | None) -> list[int]:
    return [int(word) for word in (text or "").split() if word.isdecimal()]
