"""What Linux describes of a machine is read as it is, and where it describes nothing."""

import os

import pytest
from topologies import recorded

from hvd_ft.system.topology import Cpu, Topology, allowed_nodes, numbers, read_topology

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0-3,8\n", [0, 1, 2, 3, 8]),
        ("5", [5]),
        ("\n", []),
        (None, []),
        ("(null)", []),
        ("0-3,x", []),
    ],
)
def test_lists_of_numbers(text: str | None, found: list[int]) -> None:
    assert numbers(text) == found


def test_two_nodes() -> None:
    machine = recorded("two_nodes")
    assert [cpu.number for cpu in machine.cpus] == list(range(16))
    assert {cpu.node for cpu in machine.cpus[:8]} == {0}
    assert {cpu.node for cpu in machine.cpus[8:]} == {1}
    assert {cpu.core for cpu in machine.cpus} == set(range(16))
    assert [round(size / GIB) for size in machine.memory.values()] == [16, 16]
    assert machine.distances == {0: {0: 10, 1: 21}, 1: {0: 21, 1: 10}}
    assert machine.is_numa


def test_neighbours_need_not_have_consecutive_numbers() -> None:
    machine = recorded("four_nodes")
    assert [cpu.number for cpu in machine.cpus[:3]] == [0, 4, 8]
    assert machine.cpus[10] == Cpu(1, node=1, socket=1, core=1)
    assert len(machine.memory) == 4


def test_cores_with_two_threads_and_sockets_with_two_nodes() -> None:
    machine = recorded("eight_nodes")
    assert machine.cpus[:3] == (Cpu(0, 0, 0, 0), Cpu(1, 0, 0, 0), Cpu(2, 0, 0, 2))
    assert {cpu.socket: cpu.node for cpu in machine.cpus} == {0: 1, 1: 3, 2: 5, 3: 7}


def test_one_node_is_no_numa() -> None:
    machine = recorded("one_node")
    assert machine.cpus == (Cpu(0, 0, 0, 0), Cpu(1, 0, 0, 1))
    assert not machine.is_numa


def test_what_a_process_may_use() -> None:
    part = recorded("two_nodes").within({1, 9, 99}, {1})
    assert part.cpus == (Cpu(1, 0, 0, 1), Cpu(9, 1, 1, 9), Cpu(99, core=99))
    assert list(part.memory) == [1]
    assert not part.is_numa


def test_without_sysfs_each_cpu_is_a_core() -> None:
    bare = read_topology(lambda _: None)
    assert bare == Topology()
    assert bare.within({3, 5}, ()).cpus == (Cpu(3, core=3), Cpu(5, core=5))
    assert bare.memory_near([Cpu(3)]) == ()


def test_the_nearest_memory() -> None:
    cpus = tuple(Cpu(number, node=number) for number in range(3))
    far = {0: {0: 10, 1: 31, 2: 21}, 1: {0: 31, 1: 10, 2: 21}, 2: {0: 21, 1: 21, 2: 10}}
    machine = Topology(cpus, {0: GIB, 2: GIB}, far)
    assert machine.memory_near(cpus[:1]) == (0,)
    assert machine.memory_near(cpus[1:2]) == (2,)
    assert machine.memory_near(cpus) == (0, 2)


def test_this_machine() -> None:
    machine = read_topology()
    assert os.sched_getaffinity(0) <= {cpu.number for cpu in machine.cpus}
    if machine.memory:
        assert set(allowed_nodes()) <= machine.memory.keys()
