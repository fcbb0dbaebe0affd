"""Jobs on several nodes: which ranks are where, training over the ring, and workers that die."""

import itertools
import json
import re
import sys
from pathlib import Path

import pytest
from conftest import SCRIPTS, Cluster, Device, Ended

from hvd_ft.agent.node_leader import Endpoints, choose_endpoints, why_few_cpus
from hvd_ft.errors import HvdFtError
from hvd_ft.job.placement import Nodes
from hvd_ft.job.settings import Settings
from hvd_ft.members.hosts import host_list, parse_placement
from hvd_ft.mpi.environment import split_threads

SCRIPT = str(SCRIPTS / "nodes_script.py")
SUMS = str(SCRIPTS / "sums_script.py")


def test_ranks_and_their_nodes() -> None:
    nodes = Nodes.of(["a", "a", "a", "b", "c", "c"])
    assert nodes == Nodes((0, 3, 4, 6))
    assert len(nodes) == 3 and nodes.firsts == (0, 3, 4)
    assert [nodes.node_of(rank) for rank in range(6)] == [0, 0, 0, 1, 2, 2]
    assert list(map(nodes.ranks, range(3))) == [range(3), range(3, 4), range(4, 6)]
    assert Nodes.of(["a", "a"]) == Nodes((0, 2))


def test_ranks_of_a_host_that_do_not_follow_each_other_are_an_error() -> None:
    with pytest.raises(HvdFtError, match=r"ranks of a are not consecutive \(rank 2 is there"):
        Nodes.of(["a", "b", "a"])


@pytest.mark.parametrize(
    ("hosts", "ring", "cpus", "why"),
    [
        ([4, 2], [4, 2], [7, 5], ""),
        ([4, 2], [4, 2], [7, 4], "4 CPUs for 2 ranks on the host of rank 4"),
        ([2], [1, 1], [8], ""),
        ([2], [1, 1], [7], "7 CPUs for 2 ranks on the host of rank 0"),  # which has two leaders
    ],
)
def test_a_leader_has_endpoints_as_there_are_cpus(
    hosts: list[int], ring: list[int], cpus: list[int], why: str
) -> None:
    firsts = [tuple(itertools.accumulate(sizes, initial=0)) for sizes in (hosts, ring)]
    # An agent may be pinned; all those of a host count.
    shares = [range(i, n, k) for n, k in zip(cpus, hosts, strict=True) for i in range(k)]
    assert why_few_cpus(Nodes(firsts[0]), Nodes(firsts[1]), shares) == why


@pytest.mark.parametrize(
    ("asked", "given", "chosen"),
    [
        (("auto", 1), (6, "", ""), Endpoints(3, 1, "")),
        (("auto", 1), (6, "", "few"), Endpoints(1, 1, "few")),
        (("3", 4), (15, "", "few"), Endpoints(3, 4, "")),
        (("3", 1), (1, "no split", ""), Endpoints(1, 1, "no split")),
        (("1", 4), (15, "", ""), Endpoints(1, 1, "HOROVOD_FT_ENDPOINTS is 1")),
        (("2", 4), (6, "", "few"), Endpoints(2, 1, "HOROVOD_FT_ENDPOINTS is 2")),
        (("2", 1), (1, "no split", ""), Endpoints(1, 1, "no split")),
        (
            ("3", 1),
            (5, "", ""),
            Endpoints(1, 1, "MPI was started with 5 endpoints, and 6 are needed"),
        ),
        (
            ("3", 4),
            (14, "", ""),
            Endpoints(3, 3, "MPI was started with 14 endpoints, and 15 are needed"),
        ),
    ],
)
def test_endpoints_are_those_that_mpi_has(
    asked: tuple[str, int], given: tuple[int, str, str], chosen: Endpoints
) -> None:
    available, lack, few = given
    assert choose_endpoints(*asked, available=available, lack=lack, few_cpus=few) == chosen


@pytest.mark.parametrize("connections", [1, 2, 8])
def test_mpi_is_started_with_as_many_endpoints_as_connections_need(connections: int) -> None:
    split = split_threads({"HOROVOD_FT_CONNECTIONS": str(connections)})
    available = int(split["I_MPI_THREAD_MAX"])
    chosen = choose_endpoints("3", connections, available=available, lack="", few_cpus="")
    assert chosen == Endpoints(3, connections, "")
    assert chosen.in_use < available  # one is the main thread's


def test_endpoints_that_are_not_known() -> None:
    with pytest.raises(HvdFtError, match="HOROVOD_FT_ENDPOINTS='4' is not allowed: give auto or 1"):
        Settings.from_env({"HOROVOD_FT_ENDPOINTS": "4"})
    with pytest.raises(HvdFtError, match="CONNECTIONS='9' is not allowed: give a whole"):
        Settings.from_env({"HOROVOD_FT_CONNECTIONS": "9"})


def run(cluster: Cluster, placement: str, *arguments: str) -> Ended:
    """Runs a job of 8 ranks on a cluster's nodes."""
    hosts = host_list(parse_placement(placement))
    hvdft = [sys.executable, "-m", "hvd_ft.cli", "run", "-np", "8", "-H", hosts]
    ended = cluster.hvdft("run", "--", *hvdft, *arguments)
    left = "find /dev/shm -path '*hvdft-*/*'; pgrep -f hvd_ft.agent$ || :"
    assert [cluster.sh(node, left) for node in ("n0", "n1", "n2")] == [""] * 3
    return ended


FUSED_OR_NOT = """\
import numpy as np
import tensorflow as tf
import hvd_ft.tensorflow as hvd

hvd.init()
draw = np.random.default_rng(hvd.rank())
sizes = (3, 1000, 17, 200_000, 5)
tensors = [tf.constant(draw.standard_normal(n).astype("float32")) for n in sizes]
alone = [hvd.allreduce(x, name=f"x{i}", op=hvd.Sum) for i, x in enumerate(tensors)]
fused = hvd.grouped_allreduce(tensors, op=hvd.Sum)
others = hvd.grouped_allreduce(tensors[::-1][:3], op=hvd.Sum)
pairs = [*zip(alone, fused), *zip(alone[::-1], others)]
print([a.numpy().tobytes() == b.numpy().tobytes() for a, b in pairs], flush=True)
"""


def test_a_sum_does_not_depend_on_what_is_fused_with_it(cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(FUSED_OR_NOT)
    hvdft = [sys.executable, "-m", "hvd_ft.cli", "run", "-np", "3", "-H", "n0:1,n1:1,n2:1"]
    ended = cluster.hvdft("run", "--", *hvdft, "--no-live", sys.executable, str(script))
    assert ended.code == 0, ended.err
    assert ended.out.count(str([True] * 8)) == 3, ended.out


KILL_LAUNCHER = """\
import os, signal

if os.environ["HOROVOD_RANK"] == "0":
    os.kill(int(os.environ["LAUNCHER"]), signal.SIGKILL)
while True:
    signal.pause()
"""


def test_a_killed_launcher_leaves_no_machine_file(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, scratch = tmp_path / "script.py", tmp_path / "scratch"
    script.write_text(KILL_LAUNCHER)
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    flags = ["-np", "2", "-H", "n0:1,n1:1", "--picture", str(tmp_path / "p.png"), "--no-live"]
    shell = ["sh", "-c", 'LAUNCHER=$$ exec "$0" -m hvd_ft.cli run "$@"', sys.executable]
    ended = cluster.hvdft("run", "--", *shell, *flags, sys.executable, str(script))
    assert ended.code == 137, ended.err
    # The job ends by itself, soon after its launcher.
    cluster.sh("n0", "while pgrep -f 'hvd_ft[.]agent' >/dev/null; do sleep 0.1; done")
    assert list(scratch.iterdir()) == []


def test_a_report_that_cannot_be_written_is_said_by_the_code(
    cluster: Cluster, device: Device
) -> None:
    hvdft = [sys.executable, "-m", "hvd_ft.cli", "run", "-np", "2", "-H", "n0:1,n1:1", "--no-live"]
    end = "from hvd_ft import native; native.worker().orderly_exit()"
    flags = ["--report", device("full")]
    ended = cluster.hvdft("run", "--", *hvdft, *flags, sys.executable, "-c", end)
    assert ended.code == 74, ended.err
    assert ended.err.count("could not be written (No space left on device)") == 1


@pytest.mark.parametrize("endpoints", ["1", "3"])
def test_the_last_message_of_an_op_arrives(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, endpoints: str
) -> None:
    """MPI kept messages that it had called sent, and its rank made no further call."""
    monkeypatch.setenv("HOROVOD_FT_ENDPOINTS", endpoints)
    small_ops = ["500", "65536"]
    flat = ["--no-live", "--topology", "flat"]
    ended = run(cluster, "4-2-2", *flat, sys.executable, SUMS, *small_ops)
    assert ended.code == 0, ended.err
    sums = re.findall(r"SUMS (\d) 0 (\w+)", ended.out)
    assert sorted(rank for rank, _ in sums) == list("01234567")
    assert len({hashed for _, hashed in sums}) == 1


def test_a_worker_that_is_alone_on_its_node_dies_and_the_sums_are_right(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROVOD_FT_ENDPOINTS", "1")
    flags = ["--no-live", "--inject", "rank=7,op=300"]
    ended = run(cluster, "4-3-1", *flags, sys.executable, SUMS, "500", "65536")
    assert ended.code == 0, ended.err
    assert "1 endpoint" in ended.err
    sums = re.findall(r"SUMS (\d) (\d) (\w+)", ended.out)
    assert sorted(found[:2] for found in sums) == [(str(r), str(int(r == 7))) for r in range(8)]
    assert len({hashed for _, _, hashed in sums}) == 1


def test_a_host_that_is_named_several_times_has_its_ranks_together(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROVOD_FT_ENDPOINTS", "1")
    report = tmp_path / "report.jsonl"
    flags = ["-np", "5", "-H", "n0:1,n1:1,n2:1,n0:1,n1:4", "--topology", "flat"]
    flags += ["--no-live", "--report", str(report), "--inject", "agent=1,op=30"]
    hvdft = [sys.executable, "-m", "hvd_ft.cli", "run", *flags]
    ended = cluster.hvdft("run", "--", *hvdft, sys.executable, SUMS, "60", "65536", "5")
    assert ended.code == 0, ended.err
    reason = "in the given order 5 of 5 edges of a ring would cross the network, by host only 3"
    told = [line for line in ended.err.splitlines() if "ordered by host" in line]
    assert told == [f"hvdft: ranks are ordered by host, n0:2,n1:2,n2:1: {reason}"]
    assert "starting generation 1" in ended.err
    begin, *_ = map(json.loads, report.read_text().splitlines())
    assert begin["hosts"] == ["n0", "n0", "n1", "n1", "n2"]
    found = re.findall(r"SUMS (\d) \d (\w+)", ended.out)
    assert sorted(rank for rank, _ in found) == list("01234")
    assert len({hashed for _, hashed in found}) == 1


@pytest.mark.shows(later=True)
def test_a_worker_dies_and_the_weights_are_the_same(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    placement, victim = "4-2-2", 5
    monkeypatch.setenv("HOROVOD_FT_ENDPOINTS", "3")
    folders = [tmp_path / "disturbed", tmp_path / "undisturbed"]
    for folder in folders:
        folder.mkdir()
    report = tmp_path / "report.jsonl"
    flags = ["--inject", f"rank={victim},step=8", "--report", str(report)]
    ended = run(cluster, placement, *flags, sys.executable, SCRIPT, *map(str, folders))
    assert ended.code == 0, ended.err
    found = [
        json.loads((folder / f"rank-{rank}.json").read_text())
        for folder in folders
        for rank in range(8)
    ]
    assert [rank["incarnation"] for rank in found] == 2 * [r == victim for r in range(8)]
    assert len({rank["weights_sha256"] for rank in found}) == 1
    assert {rank["steps"] for rank in found} == {12}
    assert {rank["computed"] for rank in found[8:]} == {12}, "nobody was disturbed"
    assert " 4 endpoints in use, MPI has 6" in ended.err  # one more for gathered ops
    begin, *events, end = map(json.loads, report.read_text().splitlines())
    placed = [host.slots * [host.name] for host in parse_placement(placement)]
    assert begin["hosts"] == list(itertools.chain(*placed))
    assert {rank["state"] for rank in end["ranks"]} == {"DONE"}
    [failed] = [event for event in events if event["type"] == "FAILED"]
    [joined] = [e for e in events if e["type"] == "JOINED" and e["incarnation"] == 1]
    assert failed["rank"] == joined["rank"] == victim
    assert failed["time_ns"] < joined["time_ns"]
