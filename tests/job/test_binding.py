"""The places of a host's ranks: as planned, in the first process of a rank and in any later one."""

import os
import sys
from collections import Counter

import pytest
from conftest import RunHvdft
from hypothesis import assume, given
from hypothesis import strategies as st
from topologies import machines, recorded

from hvd_ft.job.binding import BIND_TO, MAP_BY, Place, plan, share_of
from hvd_ft.job.settings import Settings
from hvd_ft.mpi.environment import mpi_environment
from hvd_ft.mpi.variables import asked_binding
from hvd_ft.system.topology import Cpu, Topology

RANKS = st.integers(1, 40)
BOUND = st.sampled_from([word for word in BIND_TO if word != "none"])
CPUS = [Cpu(number) for number in (0, 2, 4, 6, 1, 3, 5)]  # neighbours together
SAY = """\
import os, sys
from hvd_ft import native
worker = native.worker()
how = "bound" if os.sched_getscheduler(0) == os.SCHED_BATCH else "free"
cpus = sorted(os.sched_getaffinity(0))
sys.stdout.write(f"CPUS {worker.rank} {worker.incarnation} {how} {cpus}\\n")
sys.stdout.flush()
if (worker.rank, worker.incarnation) == (1, 0):
    os._exit(1)
worker.orderly_exit()
"""


@pytest.mark.parametrize(
    ("ranks", "shares"),
    [
        (1, [[0, 2, 4, 6, 1, 3, 5]]),
        (3, [[0, 2], [4, 6], [1, 3, 5]]),
        (7, [[0], [2], [4], [6], [1], [3], [5]]),
        (14, [[cpu] for cpu in (0, 2, 4, 6, 1, 3, 5) for _ in range(2)]),
        (9, [[0, 2, 4, 6, 1, 3, 5]] * 9),  # some would have to do with half of what others have
    ],
)
def test_the_shares(ranks: int, shares: list[list[int]]) -> None:
    found = [share_of(CPUS, index, ranks) for index in range(ranks)]
    assert [[cpu.number for cpu in share] for share in found] == shares


def spans(*words: str) -> list[tuple[int, ...]]:
    """The CPUs of each rank, written as `0-3`."""
    return [tuple(range(int(word.split("-")[0]), int(word.split("-")[-1]) + 1)) for word in words]


@pytest.mark.parametrize(
    ("bind_to", "map_by", "cpus", "memory"),
    [
        ("auto", "slot", spans("0-3", "4-7", "8-11", "12-15"), [0, 0, 1, 1]),
        ("auto", "numa", spans("0-3", "8-11", "4-7", "12-15"), [0, 1, 0, 1]),
        ("core", "slot", spans("0", "4", "8", "12"), [0, 0, 1, 1]),
        ("core", "numa", spans("0", "8", "4", "12"), [0, 1, 0, 1]),
        ("numa", "slot", spans("0-7", "0-7", "8-15", "8-15"), [0, 0, 1, 1]),
        ("numa", "socket", spans("0-7", "8-15", "0-7", "8-15"), [0, 1, 0, 1]),
        ("socket", "slot", spans("0-7", "0-7", "8-15", "8-15"), [0, 0, 1, 1]),
    ],
)
def test_four_ranks_on_two_nodes(
    bind_to: str, map_by: str, cpus: list[tuple[int, ...]], memory: list[int]
) -> None:
    places = plan(recorded("two_nodes"), 4, bind_to, map_by)
    assert [place.cpus for place in places] == cpus
    assert [place.memory for place in places] == [(node,) for node in memory]


def test_a_share_over_two_nodes_has_the_memory_of_both() -> None:
    places = plan(recorded("two_nodes"), 3, "auto", "slot")
    assert [place.memory for place in places] == [(0,), (0, 1), (1,)]


def test_four_nodes_are_dealt_in_turn() -> None:
    places = plan(recorded("four_nodes"), 6, "numa", "numa")
    assert [place.memory for place in places] == [(0,), (1,), (2,), (3,), (0,), (1,)]
    assert places[1].cpus == tuple(range(1, 40, 4))


def test_a_socket_of_two_nodes_and_a_core_of_two_threads() -> None:
    machine = recorded("eight_nodes")
    [first, second, *_] = plan(machine, 5, "socket", "socket")
    assert (first.cpus, first.memory) == (tuple(range(16)), (0, 1))
    assert (second.cpus, second.memory) == (tuple(range(16, 32)), (2, 3))
    assert plan(machine, 32, "core", "slot")[3].cpus == (6, 7)


def test_a_full_node_is_passed_over() -> None:
    part = recorded("two_nodes").within({0, 8, 9, 10}, {0, 1})
    assert [place.cpus for place in plan(part, 4, "core", "numa")] == [(0,), (8,), (9,), (10,)]


def test_agents_stay_off_the_workers_cores() -> None:
    machine = recorded("two_nodes")
    places = plan(machine, 4, "core", "slot")
    assert places[0].agent_cpus == (1, 2, 3, 5, 6, 7)  # and near their own worker
    assert places[3].agent_cpus == (9, 10, 11, 13, 14, 15)
    # The own node has none to spare, the other one has.
    part = machine.within({0, 8, 9}, {0, 1})
    assert [place.agent_cpus for place in plan(part, 2, "core", "slot")] == [(9,), (9,)]
    # Nothing to spare: with its worker.
    assert plan(machine, 4, "numa", "slot")[2].agent_cpus == tuple(range(8, 16))


def test_one_node_has_no_places_for_memory() -> None:
    places = plan(recorded("one_node"), 2, "auto", "slot")
    assert places == [Place((0,), (), (0, 1)), Place((1,), (), (0, 1))]


@given(machines(), RANKS, BOUND, st.sampled_from(MAP_BY))
def test_every_rank_has_cpus_that_it_may_use(
    machine: Topology, ranks: int, bind_to: str, map_by: str
) -> None:
    allowed = {cpu.number for cpu in machine.cpus}
    places = plan(machine, ranks, bind_to, map_by)
    assert len(places) == ranks
    for place in places:
        assert place.cpus and set(place.cpus) <= allowed
        assert place.agent_cpus and set(place.agent_cpus) <= allowed
        assert set(place.memory) <= machine.memory.keys()
        assert bool(place.memory) == machine.is_numa
        mine = {cpu.node for cpu in machine.cpus if cpu.number in place.cpus}
        if machine.is_numa and mine <= machine.memory.keys():
            assert set(place.memory) == mine


@given(machines(), RANKS, st.sampled_from(MAP_BY))
def test_cores_are_whole_and_have_ranks_evenly(machine: Topology, ranks: int, map_by: str) -> None:
    cores: dict[int, set[int]] = {}
    for cpu in machine.cpus:
        cores.setdefault(cpu.core, set()).add(cpu.number)
    core_of = {frozenset(cpus): core for core, cpus in cores.items()}
    taken = Counter(
        core_of[frozenset(place.cpus)] for place in plan(machine, ranks, "core", map_by)
    )
    counts = [taken[core] for core in cores]
    assert max(counts) - min(counts) <= 1


@given(machines(), RANKS, st.sampled_from(["numa", "socket"]), st.sampled_from(MAP_BY))
def test_whole_nodes_and_sockets(machine: Topology, ranks: int, bind_to: str, map_by: str) -> None:
    def of(cpu: Cpu) -> int:
        return cpu.node if bind_to == "numa" else cpu.socket

    whole = {
        number: {cpu.number for cpu in machine.cpus if of(cpu) == number}
        for number in map(of, machine.cpus)
    }
    for place in plan(machine, ranks, bind_to, map_by):
        assert set(place.cpus) in whole.values()


@given(machines(), RANKS, st.sampled_from(MAP_BY))
def test_even_shares_partition_the_cpus(machine: Topology, ranks: int, map_by: str) -> None:
    places = plan(machine, ranks, "auto", map_by)
    if map_by == "slot" and ranks <= len(machine.cpus):
        dealt = [cpu for place in places for cpu in place.cpus]
        assert dealt == [cpu.number for cpu in machine.cpus]
    for group in ("numa", "socket"):
        if map_by == group:
            for place in places:
                mine = [cpu for cpu in machine.cpus if cpu.number in place.cpus]
                assert len({cpu.node if group == "numa" else cpu.socket for cpu in mine}) == 1


@given(machines(), RANKS, BOUND, st.sampled_from(MAP_BY))
def test_an_agent_is_beside_the_workers_if_it_can_be(
    machine: Topology, ranks: int, bind_to: str, map_by: str
) -> None:
    places = plan(machine, ranks, bind_to, map_by)
    of = {cpu.number: cpu for cpu in machine.cpus}
    taken = {of[number].core for place in places for number in place.cpus}
    spare_nodes = {cpu.node for cpu in machine.cpus if cpu.core not in taken}
    for place in places:
        cores = {of[number].core for number in place.agent_cpus}
        mine = {of[number].node for number in place.cpus}
        assert not (spare_nodes and cores & taken)
        if spare_nodes & mine or not spare_nodes:
            assert {of[number].node for number in place.agent_cpus} <= mine


@given(machines(), RANKS)
def test_ranks_are_dealt_to_nodes_in_turn(machine: Topology, ranks: int) -> None:
    nodes = sorted({cpu.node for cpu in machine.cpus})
    least = min(len({cpu.core for cpu in machine.cpus if cpu.node == node}) for node in nodes)
    assume(ranks <= least * len(nodes))
    of = {cpu.number: cpu.node for cpu in machine.cpus}
    for rank, place in enumerate(plan(machine, ranks, "numa", "numa")):
        assert of[place.cpus[0]] == nodes[rank % len(nodes)]


def test_unbound_ranks_have_no_place() -> None:
    assert plan(recorded("two_nodes"), 3, "none", "numa") == [Place()] * 3
    assert plan(Topology(), 2, "auto", "slot") == [Place()] * 2


@pytest.mark.parametrize(
    ("environ", "asked"),
    [
        ({}, "auto"),
        ({"I_MPI_PIN": "off"}, "none"),
        ({"I_MPI_PIN": "1"}, "auto"),
        ({"I_MPI_PIN": "0", "HOROVOD_FT_BIND_TO": "core"}, "core"),
        ({"I_MPI_PIN_DOMAIN": "sock"}, "socket"),
        ({"I_MPI_PIN_DOMAIN": "4:compact"}, "auto"),
        ({"I_MPI_PIN_DOMAIN": "numa", "I_MPI_PIN": "0"}, "none"),
    ],
)
def test_the_user_may_say_how(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], asked: str
) -> None:
    assert asked_binding(environ) == asked
    for name in ("HOROVOD_FT_BIND_TO", "I_MPI_PIN", "I_MPI_PIN_DOMAIN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    agents = {**os.environ, **mpi_environment(one_host=True)}
    assert Settings.from_env(agents).bind_to == asked


def test_agents_of_another_launcher_bind_only_if_asked() -> None:
    assert Settings.from_env({}).bind_to == "none"
    assert Settings.from_env({"I_MPI_PIN": "1"}).bind_to == "none"
    assert Settings.from_env({"HOROVOD_FT_BIND_TO": "auto"}).bind_to == "auto"


@pytest.mark.shows
@pytest.mark.parametrize(
    ("flags", "env"),
    [
        (["--bind-to", "core"], {"I_MPI_PIN": "0"}),
        ([], {}),
        ([], {"I_MPI_PIN": "0"}),
        (["--bind-to", "none", "--map-by", "numa"], {}),
    ],
)
def test_a_restarted_rank_has_the_same_cpus(
    run_hvdft: RunHvdft, flags: list[str], env: dict[str, str]
) -> None:
    command = ["run", "-np", "2", "--no-live", *flags, sys.executable, "-c", SAY]
    ended = run_hvdft(command, env=env)
    assert ended.code == 0, ended.err
    said, how = {}, set()
    for line in ended.out.splitlines():
        _, rank, incarnation, word, cpus = line.split(maxsplit=4)
        said[int(rank), int(incarnation)] = cpus
        how.add(word)
    free = "none" in flags or bool(not flags and env)
    assert how == {"free" if free else "bound"}
    assert said.keys() == {(0, 0), (1, 0), (1, 1)}
    assert said[1, 0] == said[1, 1]
    everything = str(sorted(os.sched_getaffinity(0)))
    alone = free or len(os.sched_getaffinity(0)) == 1
    assert (said[0, 0] == said[1, 0] == everything) == alone
