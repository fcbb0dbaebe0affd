"""`hvdft check --numa`: what is said about placements that hurt, and of a running job."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from conftest import RunHvdft
from rich.console import Console
from topologies import recorded

from hvd_ft.doctor.facts import HostFacts
from hvd_ft.doctor.host_rules import several_mpis
from hvd_ft.job.running import find_job
from hvd_ft.mpi.in_paths import mpis_in_path
from hvd_ft.native.agent import create_node
from hvd_ft.system.process_placement import Thread
from hvd_ft.tools.check.numa import megabytes, processes_table, spans, topology_table
from hvd_ft.tools.check.numa_advice import advice
from hvd_ft.tools.check.placed import AGENT, WORKER, Placed

MIB = 1 << 20
TWO = recorded("two_nodes")  # CPUs 0-7 and 8-15


def process(
    rank: int,
    cpus: set[int],
    *threads: Thread,
    role: str = WORKER,
    policy: str = "default",
    own: Mapping[int, int] | None = None,
    area: Mapping[int, int] | None = None,
) -> Placed:
    main = Thread("python", frozenset(cpus), min(cpus))
    return Placed(
        rank, role, 100 + rank, (main, *threads), policy, own or {}, area or {}, {0: MIB}, {}
    )


def said(*jobs: Placed, policy: str = "default", **env: str) -> str:
    return "\n".join(advice(TWO, jobs, policy=policy, environ=env))


def test_nothing_hurts() -> None:
    mirror = Thread("hvdft-mirror", frozenset({5}), 5)
    assert said() == ""
    assert (
        said(
            process(0, {0, 1}, own={0: 500 * MIB, 1: 90 * MIB}, area={0: MIB}),
            process(0, {5}, mirror, role=AGENT),
            process(1, {8}, policy="bind:1", own={1: 500 * MIB}),
            I_MPI_PIN_DOMAIN="numa",
        )
        == ""
    )


@pytest.mark.parametrize(("policy", "hurts"), [("interleave:0-1", True), ("bind:0", False)])
def test_a_policy(policy: str, hurts: bool) -> None:
    assert ("neither default nor bind" in said(policy=policy)) == hurts
    of_ranks = said(process(0, {0}), process(1, {1}, policy=policy), process(2, {2}, policy=policy))
    assert (f"policy of ranks 1, 2 is {policy}" in of_ranks) == hurts


def test_ranks_over_nodes() -> None:
    text = said(process(0, {6, 7, 8}), process(1, {9}), process(2, set(range(16))))
    assert text.startswith("ranks 0, 2 may run on several NUMA nodes (0, 1)")


@pytest.mark.parametrize(
    ("own", "area", "hurts"),
    [
        ({0: 90 * MIB, 1: 10 * MIB}, {}, "node 1, but 90 of the 100 MiB of its own memory lie"),
        ({0: 24 * MIB, 1: 76 * MIB}, {}, ""),
        ({0: 15 * MIB, 1: 5 * MIB}, {}, ""),  # libraries, mostly
        ({}, {0: 2 * MIB, 1: MIB}, "node 1, but 2 of the 3 MiB of its input area and snapshots"),
    ],
)
def test_memory_on_another_node(
    own: Mapping[int, int], area: Mapping[int, int], hurts: str
) -> None:
    text = said(process(1, {8, 9}, own=own, area=area))
    assert hurts in text
    assert bool(text) == bool(hurts)


def test_an_endpoints_thread_on_a_workers_core() -> None:
    def leaders(mirror: int, send: int) -> Placed:
        anywhere = frozenset(range(16))
        threads = [Thread("hvdft-mirror", anywhere, mirror), Thread("hvdft-send", anywhere, send)]
        return process(0, set(range(16)), *threads, role=AGENT)

    workers = process(0, {0}), process(1, {8})
    text = said(*workers, leaders(8, 2))
    assert text.startswith("hvdft-mirror of rank 0's agent ran on a worker's core")
    assert said(*workers, leaders(3, 2)) == ""
    asleep = Thread("hvdft-mirror", frozenset({1}), 0)  # since it was bound
    assert said(*workers, process(0, {1}, asleep, role=AGENT)) == ""
    halves = process(0, set(range(8))), process(1, set(range(8, 16)))
    assert said(*halves, leaders(8, 0)) == ""  # there is no other core


def test_ranks_on_one_core() -> None:
    text = said(process(0, {0}), process(1, {8}), process(2, {0}))
    assert text.startswith("ranks 0, 2 share the core of CPU 0, while the cores of CPUs 1, 2")
    full = [process(rank, {rank % 16}) for rank in range(17)]
    assert said(*full) == ""


def test_what_has_no_effect() -> None:
    assert "I_MPI_PIN_DOMAIN=4:compact is for MPI processes" in said(I_MPI_PIN_DOMAIN="4:compact")


def test_two_mpis(tmp_path: Path) -> None:
    def put(name: str) -> str:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        return str(file.parent)

    one = [put("one/bin/mpirun"), put("one/lib/release/libmpi.so")]
    other = put("other/bin/mpiexec")
    (tmp_path / "link").symlink_to(other)
    (tmp_path / "empty").mkdir()
    path = os.pathsep.join([str(tmp_path / "empty"), one[0], str(tmp_path / "link"), other])
    found = mpis_in_path({"PATH": path, "LD_LIBRARY_PATH": one[1]})
    assert found == [str(tmp_path / "one"), str(tmp_path / "other")]
    two = several_mpis(HostFacts("n0", mpis=found))
    assert two and two.what == f"several MPIs are in the path: {', '.join(found)}"
    assert mpis_in_path({"PATH": one[0], "LD_LIBRARY_PATH": one[1]}) == [str(tmp_path / "one")]


def test_numbers_as_linux_lists_them() -> None:
    assert spans({3, 0, 1, 2, 8}) == "0-3,8"
    assert spans(set()) == ""
    assert megabytes({1: MIB, 0: 3 << 19, 2: 0}) == "N0: 1.5, N1: 1.0"


def shown(*tables: object) -> str:
    console = Console(width=160)
    with console.capture() as captured:
        console.print(*tables)
    return captured.get()


def test_the_tables() -> None:
    text = shown(topology_table(TWO))
    assert [line.split() for line in text.splitlines()[1:]] == [
        ["0", "0", "8", "0-7", "16.0", "GiB", "10", "21"],
        ["1", "1", "8", "8-15", "16.0", "GiB", "21", "10"],
    ]
    mirror = Thread("hvdft-mirror", frozenset({5, 6}), 6)
    text = shown(processes_table(TWO, [process(3, {7, 8}, mirror, role=AGENT, own={1: MIB})]))
    _, first, second = (line.split() for line in text.splitlines())
    assert first[:3] == ["3", "agent", "103"]
    assert first[3:] == ["5-8", "0-1", "6-7", "default", "N1:", "1.0", "-", "N0:", "1.0"]
    assert second == ["hvdft-mirror", "5-6", "0", "6"]


LOOKS = """\
import subprocess, sys
import numpy as np
from hvd_ft.p2p import ft_recv, ft_send, rank

if rank() == 1:
    ft_send(np.ones(1), 0)
    ft_recv(None, 0)
else:
    ft_recv(None, 1)  # until then it may not have begun
    subprocess.run([sys.executable, "-m", "hvd_ft.cli", "check", "--numa"], check=True)
    ft_send(np.ones(1), 1)
"""


@pytest.mark.shows
@pytest.mark.parametrize("topology", ["flat", "hierarchical"])
def test_a_running_job(run_hvdft: RunHvdft, tmp_path: Path, topology: str) -> None:
    script = tmp_path / "looks.py"
    script.write_text(LOOKS)
    flags = ["-np", "2", "--bind-to", "core", "--no-live", "--topology", topology]
    ended = run_hvdft(["run", *flags, sys.executable, str(script)])
    assert ended.code == 0, ended.err
    assert "the job: --bind-to core --map-by slot (HOROVOD_FT_BIND_TO=core" in ended.out
    rows = [line.split() for line in ended.out.splitlines()]
    roles = [(row[0], row[1]) for row in rows if row[1:2] in (["worker"], ["agent"])]
    assert roles == [("0", "worker"), ("0", "agent"), ("1", "worker"), ("1", "agent")]
    assert not [row for row in rows if row[1:2] == ["worker"] and row[-1] == "-"]  # maps the arena
    leaders = [row[0] for row in rows if row[0:1] and row[0].startswith("hvdft-")]
    assert bool(leaders) == (topology == "flat")


def test_a_job_may_be_named_by_a_link(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    (tmp_path / "job").mkdir(mode=0o700)
    create_node(str(tmp_path / "job"), "job", size=2, limit_bytes=1 << 30)
    (tmp_path / "link").symlink_to("job")
    assert find_job(str(tmp_path / "link")) == str(tmp_path.resolve() / "job")
    ended = run_hvdft(["check", "--numa", str(tmp_path / "link")])
    assert (ended.code, ended.err) == (
        2,
        f"hvdft: no process of the job in {tmp_path.resolve()}/job can be seen: run this as its "
        "user, on its host, while it runs\n",
    )


def test_it_is_for_this_host(run_hvdft: RunHvdft) -> None:
    ended = run_hvdft(["check", "--numa", "-H", "a:2"])
    assert (ended.code, ended.err) == (
        2, "hvdft: -H is for a job's hosts and --numa for this one: give one of them\n",
    )  # fmt: skip


def test_without_a_job(run_hvdft: RunHvdft) -> None:
    ended = run_hvdft(["check", "--numa"], env={"HOROVOD_FT_MAP_BY": "numa"})
    assert ended.code == 0, ended.err
    assert "hvdft run would take --bind-to auto --map-by numa" in ended.out
    assert run_hvdft(["check", "--numa", "nosuchjob"]).code == 2
