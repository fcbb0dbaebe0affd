"""A model of the sides that the experiment measures: LogGP on simulated flows. Pure.

The rings are those of csrc/mpi: the same steps, segments, windows and waits. What a message costs
is a machine's (`Machine`); bytes go as flows over links, CPUs and threads (fluid.py).
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from experiments.locality.fluid import Resource, Simulation, Uses

SEGMENT_BYTES = 256 << 10
WINDOW = 4  # segments under way over an edge
BLOCKING = ("serial", "irecv_send_wait")
PIPELINED = ("threads", "endpoints", "one endpoint", "by host")
SIDES = (*BLOCKING, *PIPELINED, "hierarchical")
UNLIMITED = 1e12  # bytes a second


@dataclass(frozen=True)
class Machine:
    """What a cluster can do.

    Attributes:
        link: G: bytes a second that a host's link carries, in each direction.
        latency: L: seconds of a message between hosts.
        overhead: o: seconds of a thread's time for a message, at either end.
        handoff: seconds until a process that waits in a blocking call goes on: it needs a CPU.
        wire: seconds of CPU time at either end for a byte that goes to another host.
        memory: the same for a byte that stays on the host.
        add: seconds of CPU time to add a byte to another.
        stage: hierarchical: CPU time of a rank for a byte, contributed, added up and taken.
        start: hierarchical: seconds until an op is agreed on, and until its end is noticed.
        cpus: CPUs of a host.
        shared: whether all hosts have these same CPUs, as namespaces of one machine do.
        burst: bytes that pass at once over a link that has been idle (a token bucket).
    """

    link: float = UNLIMITED
    latency: float = 0.0
    overhead: float = 0.0
    handoff: float = 0.0
    wire: float = 1e-10
    memory: float = 1e-10
    add: float = 1e-10
    stage: float = 0.0
    start: float = 0.0
    cpus: int = 2
    shared: bool = False
    burst: float = 0.0


class _Fabric:
    """The resources of a cluster in a simulation."""

    def __init__(self, machine: Machine, hosts: int) -> None:
        self.sim = Simulation()
        self.machine = machine
        one = Resource(machine.cpus)
        self._cpus = [one if machine.shared else Resource(machine.cpus) for _ in range(hosts)]
        self._out = [Resource(machine.link, machine.burst) for _ in range(hosts)]
        self._in = [Resource(machine.link, machine.burst) for _ in range(hosts)]

    def carry(self, way: tuple["_End", "_End"], size: float, done: Callable[[], None]) -> None:
        """Bytes go from one end to another."""
        source, target = way
        uses: dict[Resource, float] = {}
        across = source.host != target.host
        if across:
            uses |= {self._out[source.host]: 1.0, self._in[target.host]: 1.0}
        cost = self.machine.wire if across else self.machine.memory
        for resource in (
            *(source.thread, target.thread),
            *(self._cpus[source.host], self._cpus[target.host]),
        ):
            uses[resource] = uses.get(resource, 0.0) + cost
        self.sim.flow(size, uses, done)

    def work(self, end: "_End", seconds: float, done: Callable[[], None]) -> None:
        """A thread computes for so many seconds of CPU time."""
        uses: Uses = {end.thread: 1.0, self._cpus[end.host]: 1.0}
        if seconds > 0:
            self.sim.flow(seconds, uses, done)
        else:
            self.sim.after(0.0, done)

    def latency(self, source: "_End", target: "_End") -> float:
        return self.machine.latency if source.host != target.host else 0.0


@dataclass(frozen=True)
class _End:
    """A thread on a host."""

    host: int
    thread: Resource


@dataclass(frozen=True)
class Steps:
    """How much a ring does.

    Attributes:
        adds: steps in which what is received is added.
        copies: steps in which it is the result.
        chunk: bytes of a step.
    """

    adds: int
    copies: int
    chunk: float

    @property
    def count(self) -> int:
        """All steps."""
        return self.adds + self.copies


def allreduce(members: int, size: float) -> Steps:
    """Returns the steps of a ring allreduce of so many bytes."""
    return Steps(members - 1, members - 1, size / members)


class _BlockingRing:
    """Whole chunks: `serial`, where a member has one direction at a time, or `irecv_send_wait`."""

    def __init__(
        self, fabric: _Fabric, hosts: Sequence[int], steps: Steps, *, serial: bool
    ) -> None:
        self._fabric, self._steps, self._serial = fabric, steps, serial
        self._ends = [_End(host, Resource(1.0)) for host in hosts]
        self._step = [0] * len(hosts)
        self._waits: list[list[int]] = [[] for _ in hosts]  # for these edges, in this step
        self._here: set[tuple[int, int]] = set()  # edge and step: one of its members is there
        for member in range(len(hosts)):
            self._begin(member)

    def _begin(self, member: int) -> None:
        if self._step[member] == self._steps.count:
            return
        edges = [member, (member - 1) % len(self._ends)]
        self._waits[member] = edges if member % 2 == 0 else edges[::-1]
        for edge in self._waits[member][: 1 if self._serial else 2]:
            self._arrive(edge, self._step[member])

    def _arrive(self, edge: int, step: int) -> None:
        if (edge, step) not in self._here:
            self._here.add((edge, step))
            return
        machine, way = self._fabric.machine, self._way(edge)
        hop = 2 * machine.overhead + self._fabric.latency(*way)
        # Request and answer of a rendezvous, and the data; before that a token (blocking_ring.cc).
        wait = 4 * hop + machine.handoff if self._serial else 3 * hop
        self._fabric.sim.after(
            wait, lambda: self._fabric.carry(way, self._steps.chunk, lambda: self._passed(edge))
        )

    def _way(self, edge: int) -> tuple[_End, _End]:
        return self._ends[edge], self._ends[(edge + 1) % len(self._ends)]

    def _passed(self, edge: int) -> None:
        for member in (edge, (edge + 1) % len(self._ends)):
            self._fabric.sim.after(self._fabric.machine.handoff, partial(self._go_on, member, edge))

    def _go_on(self, member: int, edge: int) -> None:
        waits = self._waits[member]
        waits.remove(edge)
        if waits:
            if self._serial:
                self._arrive(waits[0], self._step[member])
            return
        adds = self._step[member] < self._steps.adds
        seconds = self._fabric.machine.add * self._steps.chunk if adds else 0.0
        self._step[member] += 1
        self._fabric.work(self._ends[member], seconds, lambda: self._begin(member))


class _PipelinedRing:
    """Segments: receiving one, adding the one before and sending the one before that overlap.

    Args:
        threads: of a member: 2, one for each direction, or 1.
        ready: how many of a member's inputs are there; None: all. See `inputs_ready`.
    """

    def __init__(
        self,
        fabric: _Fabric,
        hosts: Sequence[int],
        steps: Steps,
        threads: int,
        *,
        ready: list[int] | None = None,
    ) -> None:
        self._fabric, self._steps, count = fabric, steps, len(hosts)
        self.segments = max(math.ceil(steps.chunk / SEGMENT_BYTES), 1)
        receives = [Resource(1.0) for _ in hosts]
        sends = receives if threads == 1 else [Resource(1.0) for _ in hosts]
        self._out = [_End(host, thread) for host, thread in zip(hosts, sends, strict=True)]
        self._in = [_End(host, thread) for host, thread in zip(hosts, receives, strict=True)]
        self._sent, self._received, self._under_way = [0] * count, [0] * count, [0] * count
        self._posted: list[deque[int]] = [deque() for _ in hosts]
        self._carries, self._takes = [False] * count, [False] * count
        self._arrived: list[deque[int]] = [deque() for _ in hosts]
        self._ready = ready if ready is not None else [steps.count * self.segments + 1] * count
        for member in range(count):
            self._send(member)

    def size_of(self, position: int) -> float:
        """Returns the bytes of the segment at a position of an edge."""
        begin = position % self.segments * SEGMENT_BYTES
        return min(self._steps.chunk - begin, SEGMENT_BYTES)

    def inputs_ready(self, member: int) -> None:
        """More of a member's inputs are there."""
        self._send(member)
        self._take(member)

    def _may_send(self, member: int, position: int) -> bool:
        if position < self.segments:
            return self._ready[member] > position
        return self._received[member] > position - self.segments

    def _send(self, member: int) -> None:
        while (
            self._under_way[member] < WINDOW
            and self._sent[member] < self._steps.count * self.segments
            and self._may_send(member, self._sent[member])
        ):
            position = self._sent[member]
            self._sent[member] += 1
            self._under_way[member] += 1
            self._fabric.work(
                self._out[member],
                self._fabric.machine.overhead,
                partial(self._post, member, position),
            )

    def _post(self, member: int, position: int) -> None:
        self._posted[member].append(position)
        self._carry(member)

    def _carry(self, member: int) -> None:
        """An edge carries one message after the other, of those that its receiver is ready for."""
        queue, after = self._posted[member], (member + 1) % len(self._in)
        if self._carries[member] or not queue or queue[0] >= self._received[after] + WINDOW:
            return
        position = queue.popleft()
        self._carries[member] = True
        way = (self._out[member], self._in[after])
        self._fabric.carry(way, self.size_of(position), lambda: self._carried(member, position))

    def _carried(self, member: int, position: int) -> None:
        after = (member + 1) % len(self._in)
        self._carries[member] = False
        self._under_way[member] -= 1
        latency = self._fabric.latency(self._out[member], self._in[after])
        self._fabric.sim.after(latency, lambda: self._arrive(after, position))
        self._carry(member)
        self._send(member)

    def _arrive(self, member: int, position: int) -> None:
        self._arrived[member].append(position)
        self._take(member)

    def _take(self, member: int) -> None:
        """The oldest message is added to the member's own input, or is the result."""
        queue = self._arrived[member]
        if self._takes[member] or not queue:
            return
        adds = queue[0] < self._steps.adds * self.segments
        if adds and self._ready[member] <= queue[0] + self.segments:
            return
        position = queue.popleft()
        self._takes[member] = True
        machine = self._fabric.machine
        seconds = machine.overhead + (machine.add * self.size_of(position) if adds else 0.0)
        self._fabric.work(self._in[member], seconds, lambda: self._taken(member, position))

    def _taken(self, member: int, position: int) -> None:
        self._takes[member] = False
        self._received[member] = position + 1
        self._send(member)
        self._carry((member - 1) % len(self._in))
        self._take(member)


def ring_seconds(
    machine: Machine, side: str, nodes: Sequence[int], steps: Steps, rings: int = 1
) -> float:
    """Returns how long a flat ring takes.

    Args:
        machine: the cluster.
        side: one of `SIDES` but `hierarchical`.
        nodes: the node of each member, in the order of the ring.
        steps: what the ring does.
        rings: so many rings side by side, each with its share of every chunk and its own threads.
    """
    fabric = _Fabric(machine, max(nodes) + 1)
    if side == "by host":
        nodes = sorted(nodes)
    share = replace(steps, chunk=steps.chunk / rings)
    for _ in range(rings):
        if side in BLOCKING:
            _BlockingRing(fabric, nodes, share, serial=side == "serial")
        else:
            _PipelinedRing(fabric, nodes, share, 1 if side == "one endpoint" else 2)
    return fabric.sim.run()


def hierarchical_seconds(machine: Machine, nodes: Sequence[int], size: float) -> float:
    """Returns how long an op of a job takes: shared memory on a node, a ring between nodes.

    Args:
        machine: the cluster.
        nodes: the node of each rank.
        size: bytes of the op.
    """
    members = max(nodes) + 1
    fabric, steps = _Fabric(machine, members), allreduce(members, size)
    ready = [0] * members
    ring = _PipelinedRing(fabric, range(members), steps, 1, ready=ready)

    def contribute(member: int, workers: _End) -> None:
        if ready[member] == members * ring.segments:
            return
        ranks = sum(node == member for node in nodes)

        def contributed() -> None:
            ready[member] += 1
            ring.inputs_ready(member)
            contribute(member, workers)

        part = ring.size_of(ready[member])
        fabric.work(workers, ranks * machine.stage * part, contributed)

    for member in range(members):
        contribute(member, _End(member, Resource(float(nodes.count(member)))))
    return fabric.sim.run() + machine.start


def seconds_of(machine: Machine, side: str, nodes: Sequence[int], size: float) -> float:
    """Returns how long an allreduce takes.

    Args:
        machine: the cluster.
        side: one of `SIDES`.
        nodes: the node of each rank.
        size: bytes of the array.
    """
    if side == "hierarchical":
        return hierarchical_seconds(machine, nodes, size)
    return ring_seconds(machine, side, nodes, allreduce(len(nodes), size))
