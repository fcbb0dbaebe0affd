"""Agents, mpirun and launchers that die: workers live on, and the sums are those of all ranks.

`sums_script.py` checks every result itself. Moments are swept by `make agentsoak`.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from conftest import HANG_SECONDS, SCRIPTS, Cluster, Ended, Once, RunHvdft, running_cluster
from test_recovery import reference, train

from hvd_ft.members.hosts import host_list, parse_placement

SUMS = [sys.executable, str(SCRIPTS / "sums_script.py")]
MEGABYTE = 10**6
POSITIONS = 88  # of an op of 16 MB on the ring of 3 nodes: 22 segments in each of 4 steps
pytestmark = pytest.mark.timeout(200)


def sums(ended: Ended, size: int) -> dict[int, int]:
    """Returns each rank's incarnation; all ranks have found the same."""
    assert ended.code == 0, ended
    found = re.findall(r"SUMS (\d+) (\d+) (\w+)", ended.out)
    assert sorted(int(rank) for rank, _, _ in found) == list(range(size)), ended
    assert len({digest for _, _, digest in found}) == 1
    return {int(rank): int(incarnation) for rank, incarnation, _ in found}


def generations(ended: Ended) -> int:
    return ended.err.count("; starting generation")


@pytest.mark.shows
def test_an_agent_through_which_others_tell_and_hear(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    """Nodes are a chain: what the last ones tell passes through the others, once and to the end."""
    report = tmp_path / "report"
    drills = ["--inject", "agent=2,op=10", "--inject", "rank=3,op=40"]
    chain = {"HOROVOD_FT_NODES_BELOW": "1"}
    flags = ["-np", "4", "--topology", "flat", "--report", str(report), *drills]
    ended = run_hvdft(["run", *flags, *SUMS, "80", str(MEGABYTE), "5"], env=chain)
    incarnations = {0: 0, 1: 0, 2: 0, 3: 1}
    assert sums(ended, 4) == incarnations
    assert generations(ended) == 1
    told = [json.loads(line) for line in report.read_text().splitlines()]
    counts = Counter((event.get("rank"), event.get("type")) for event in told)
    for rank, incarnation in incarnations.items():
        assert counts[rank, "STARTED"] == incarnation + 1, counts
        assert counts[rank, "DONE"] == 1, counts


@pytest.mark.shows
@pytest.mark.parametrize("drill", ["agent=0,op=31", "mpirun,step=20"])
def test_the_weights_are_those_of_an_undisturbed_run(
    run_hvdft: RunHvdft, once: Once, tmp_path: Path, drill: str
) -> None:
    expected = reference(run_hvdft, once, "keras").results
    run = train(run_hvdft, tmp_path, "keras", [drill])
    assert run.results == expected
    assert "before the job; starting generation 1 of its agents" in run.err
    assert {rank["incarnation"] for rank in run.report.facts["ranks"]} == {0}


@pytest.mark.parametrize(
    ("drills", "incarnations"),
    [
        # Both at once; the shim reports the worker's death to the new agent.
        (["agent=1,step=30", "rank=1,step=30"], {0: 0, 1: 1, 2: 0}),
        # While a worker is on its way back.
        (["rank=2,op=30,point=copy_in", "agent=0,op=30,point=wait"], {0: 0, 1: 0, 2: 1}),
        # One agent after the other.
        (["agent=1,step=10", "agent=1,step=40", "mpirun,step=70"], {0: 0, 1: 0, 2: 0}),
    ],
)
def test_agents_and_workers_die(
    run_hvdft: RunHvdft, drills: list[str], incarnations: dict[int, int]
) -> None:
    inject = [word for drill in drills for word in ("--inject", drill)]
    ended = run_hvdft(["run", "-np", "3", *inject, *SUMS, "100", str(MEGABYTE), "5"])
    assert sums(ended, 3) == incarnations
    assert 1 <= generations(ended) <= len(drills)


def test_agents_that_die_again_and_again_end_the_job(run_hvdft: RunHvdft) -> None:
    drills = [word for op in (10, 40) for word in ("--inject", f"agent=0,op={op}")]
    ended = run_hvdft(
        ["run", "-np", "2", *drills, *SUMS, "1000", str(MEGABYTE), "5"],
        env={"HOROVOD_FT_MAX_FAILURES": "1"},
    )
    assert ended.code not in (0, 2)
    assert "hvdft: agents or mpirun failed 2 times within 300 s" in ended.err
    assert generations(ended) == 1


@pytest.mark.parametrize("number", ["KILL", "STOP"])
def test_a_shim_dies_or_is_stopped(run_hvdft: RunHvdft, number: str) -> None:
    drill = ["--inject", f"shim=1,step=10,signal={number}"]
    ended = run_hvdft(
        ["run", "-np", "2", *drill, *SUMS, "60", str(MEGABYTE), "5"],
        env={"HOROVOD_FT_LEASE_SECONDS": "8"},
    )
    assert sums(ended, 2) == {0: 0, 1: 1}
    assert generations(ended) == 0
    assert "takes its place" in ended.err


@pytest.mark.shows
@pytest.mark.parametrize("rank", [0, 1], ids=["leader", "other"])
def test_a_stopped_agent_is_found_and_replaced(run_hvdft: RunHvdft, rank: int) -> None:
    stop = ["--inject", f"agent={rank},step=10,signal=STOP"]
    ended = run_hvdft(
        ["run", "-np", "2", *stop, *SUMS, "60", str(MEGABYTE), "5"],
        env={"HOROVOD_FT_LEASE_SECONDS": "8"},
    )
    assert sums(ended, 2) == {0: 0, 1: 0}
    assert generations(ended) == 1
    assert f"the agent of rank {rank} (pid " in ended.err
    assert "is stopped: it has not answered for the time of HOROVOD_FT_LEASE_SECONDS" in ended.err


def test_a_crash_loop_is_seen_over_generations_of_agents(run_hvdft: RunHvdft) -> None:
    """A new agent counts the failures that the older one has seen."""
    drills = ["rank=1,step=5", "agent=0,step=15", "rank=1,step=25,incarnation=1"]
    inject = [word for drill in drills for word in ("--inject", drill)]
    ended = run_hvdft(
        ["run", "-np", "2", *inject, *SUMS, "1000", str(MEGABYTE), "5"],
        env={"HOROVOD_FT_MAX_FAILURES": "1"},
    )
    assert generations(ended) == 1
    assert "rank 1 failed 2 times within" in ended.err, ended.err
    assert ended.code == 128 + signal.SIGKILL


def test_without_hvdft_run_the_job_ends_with_its_agents(run_hvdft: RunHvdft) -> None:
    mpirun = [str(Path(sys.executable).with_name("mpiexec.hydra")), "-n", "2"]
    agent = [sys.executable, "-m", "hvd_ft.agent", "--inject", "agent=1,step=9"]
    ended = run_hvdft([*SUMS, "1000", str(MEGABYTE), "5"], program=[*mpirun, *agent])
    assert ended.code not in (0, 2)


@pytest.fixture(scope="module")
def slow_cluster() -> Iterator[Cluster]:
    """Three nodes with links on which an op of 16 MB takes about a second."""
    with running_cluster("--rate", "200mbit") as running:
        yield running


NODES = ("n0", "n1", "n2")
MARK = "HVD_FT_TEST_CLUSTER"


def on_nodes(placement: str) -> list[str]:
    hosts = host_list(parse_placement(placement))
    size = sum(map(int, placement.split("-")))
    return [sys.executable, "-m", "hvd_ft.cli", "run", "--verbose", "-np", str(size), "-H", hosts]


def await_clear(cluster: Cluster, seconds: float, err: str) -> None:
    """Waits until no file and no process of a job is left on any node.

    Hydra's own do not count, nor the ssh above them: one that is just starting tries for some 15 s
    to reach an mpirun that is dead.

    Args:
        cluster: where it ran.
        seconds: for that.
        err: what the job has said, with `--verbose`.
    """
    found = re.search(r"hvdft: job (\w+): ", err)
    assert found, err
    job = found[1]
    look = (
        f"ls -d /dev/shm/hvdft-*/{job} 2>/dev/null || :;"
        f"grep -slzx HOROVOD_FT_JOB={job} /proc/[0-9]*/environ | while read file; do "
        "tr '\\0' ' ' <${file%environ}cmdline | grep -v hydra_ || :; done"
    )
    deadline = time.monotonic() + seconds
    while any(left := [cluster.sh(node, look) for node in NODES]):
        assert time.monotonic() < deadline, left


# An agent dies some tenths of a second after its worker has passed the point, mpirun at once.
@pytest.mark.parametrize(
    ("drill", "leaders"),
    [
        ("agent=5,op=3,point=contribute", {"ENDPOINTS": "3"}),
        ("mpirun,rank=2,op=3,point=copy_out", {"ENDPOINTS": "1"}),
        ("agent=5,op=3,point=contribute", {"ENDPOINTS": "3", "CONNECTIONS": "4"}),
    ],
)
def test_an_op_goes_on_from_where_it_was(
    slow_cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    drill: str,
    leaders: dict[str, str],
) -> None:
    for name, value in leaders.items():
        monkeypatch.setenv(f"HOROVOD_FT_{name}", value)
    if "mpirun" in drill:  # they meet in a file
        monkeypatch.setenv("HOROVOD_FT_SHARED_DIR", str(tmp_path))
    report = tmp_path / "report.jsonl"
    flags = ["--inject", drill, "--report", str(report)]
    job = [*on_nodes("4-2-2"), *flags, *SUMS, "6", str(16 * MEGABYTE)]
    ended = slow_cluster.hvdft("run", "--", *job)
    assert set(sums(ended, 8).values()) == {0}
    assert generations(ended) == 1
    _, *events, _ = map(json.loads, report.read_text().splitlines())
    assert {e["rank"] for e in events if e["type"] == "ADOPTED"} == set(range(8))
    resumed = [e["detail"] for e in events if e["type"] == "RESUMED"]
    assert len(resumed) == 3, "one for each node"
    positions = [place - (3 << 28) for place in resumed]
    assert all(0 <= position < POSITIONS for position in positions), resumed
    assert max(positions) > 0, "not from its start"
    assert not list(tmp_path.glob("hvdft-*"))
    await_clear(slow_cluster, 10, ended.err)


def test_small_ops_that_go_round_whole(slow_cluster: Cluster) -> None:
    """Gathered: ring_plan.h. The simulator tries every moment, these are real processes."""
    drills = ["agent=5,step=100", "rank=3,step=300", "mpirun,step=500", "agent=0,step=700"]
    inject = [word for drill in drills for word in ("--inject", drill)]
    job = [*on_nodes("4-2-2"), *inject, *SUMS, "1000", "16384", "50"]
    ended = slow_cluster.hvdft("run", "--", *job)
    assert sums(ended, 8) == {rank: int(rank == 3) for rank in range(8)}
    assert generations(ended) == 3
    await_clear(slow_cluster, 10, ended.err)


class Background:
    """A job of large ops that runs in the background, and has done two of them."""

    def __init__(self, cluster: Cluster) -> None:
        # Nothing comes of this drill, but that it is told.
        flags = ["--inject", "rank=0,step=2,raise"]
        job = [*on_nodes("2-1-1"), *flags, *SUMS, "1000", str(16 * MEGABYTE), "5"]
        program = [sys.executable, "-m", "hvd_ft.cli", "cluster", "run", "--name", cluster.name]
        self.process = subprocess.Popen(
            [*program, "--", *job],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, MARK: cluster.name},
        )
        assert self.process.stderr
        self.err = ""
        for line in self.process.stderr:
            self.err += line
            if "hvdft: drill" in line:
                return
        raise AssertionError(self.err)

    def end(self) -> int:
        """Waits for its end; returns its exit code."""
        self.err += self.process.communicate(timeout=HANG_SECONDS)[1]
        return self.process.returncode


def launcher_on(cluster: Cluster) -> psutil.Process:
    """Finds it by its environment: a node is no child of who starts something there."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            runs = process.cmdline()[1:4] == ["-m", "hvd_ft.cli", "run"]
            if runs and process.environ().get(MARK) == cluster.name:
                return process
    raise AssertionError("there is no launcher")


# Between the death of mpirun and that of the launcher new agents may be on their way.
@pytest.mark.shows
@pytest.mark.parametrize("gap", [None, 0.0, 0.3, 1.0, 2.0])
def test_nothing_is_left_on_any_node_when_the_launcher_is_killed(
    slow_cluster: Cluster, gap: float | None
) -> None:
    job = Background(slow_cluster)
    launcher = launcher_on(slow_cluster)
    if gap is not None:
        (mpirun,) = [p for p in launcher.children() if p.name() == "mpiexec.hydra"]
        mpirun.kill()
        time.sleep(gap)  # the moment is the matter
    launcher.kill()
    await_clear(slow_cluster, 10, job.err)
    job.end()


def test_a_job_can_be_stopped_in_the_middle_of_an_op(slow_cluster: Cluster) -> None:
    job = Background(slow_cluster)
    begun = time.monotonic()
    launcher_on(slow_cluster).send_signal(signal.SIGINT)
    assert job.end() == 130, job.err
    assert time.monotonic() - begun < 20, job.err  # then mpirun would be killed
    await_clear(slow_cluster, 5, job.err)
