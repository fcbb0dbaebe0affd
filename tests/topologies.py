"""Machines for tests: recorded ones, and any that hypothesis draws."""

from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st

from hvd_ft.system.topology import Cpu, Topology, read_topology

RECORDED = Path(__file__).parent / "system" / "topologies"


def reader(name: str) -> Callable[[str], str | None]:
    """Returns what reads a recorded machine's files (experiments/numa/record.py)."""
    lines = (RECORDED / f"{name}.txt").read_text().splitlines()
    return dict(line.split(": ", 1) for line in lines).get


def recorded(name: str) -> Topology:
    """Returns a recorded machine, of which everything may be used."""
    return read_topology(reader(name))


@st.composite
def machines(draw: st.DrawFn) -> Topology:
    """A machine of which a process may use a part; some nodes may have no memory."""
    sockets, nodes, cores, threads = (
        draw(st.integers(1, most), label=what)
        for what, most in (("sockets", 3), ("nodes", 2), ("cores", 4), ("threads", 2))
    )
    # Threads of a core have consecutive numbers, or those of all cores follow each other.
    count = sockets * nodes * cores
    beside = draw(st.booleans(), label="threads are numbered beside each other")
    cpus = []
    for core in range(count):
        numbers = [core * threads + t if beside else core + t * count for t in range(threads)]
        node = core // cores
        cpus += [Cpu(number, node, node // nodes, numbers[0]) for number in numbers]
    every = range(sockets * nodes)
    has_memory = draw(st.sets(st.sampled_from(every), min_size=1), label="nodes with memory")
    machine = Topology(
        tuple(cpus),
        dict.fromkeys(sorted(has_memory), 1 << 30),
        {a: {b: 10 + 11 * abs(a - b) for b in every} for a in every},
    )
    allowed = draw(st.sets(st.sampled_from([cpu.number for cpu in cpus]), min_size=1))
    allowed_memory = draw(st.sets(st.sampled_from(sorted(has_memory))), label="allowed memory")
    return machine.within(allowed, allowed_memory)
