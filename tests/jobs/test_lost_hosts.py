"""Hosts that are lost are replaced by spare hosts: the results stay the same, nobody acts twice."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from conftest import HANG_SECONDS, SCRIPTS, Cluster, running_cluster
from test_generations import SUMS
from test_network import Running, digest, disturb

from hvd_ft.checkpoint.catalogue import find

DETECTION_SECONDS = 5.0
LATE_SECONDS = 3.0  # of this test's own processes, on a busy machine
OPS, SIZE, SECONDS = 400, 4096, 0.1
WORK = [*SUMS, str(OPS), str(SIZE), "1", str(SECONDS)]


@pytest.fixture
def nodes() -> Iterator[Cluster]:
    with running_cluster("-n", "5", "--rate", "1gbit") as cluster:
        yield cluster


def start(
    cluster: Cluster,
    hosts: str,
    spares: str,
    *flags: str,
    node: str = "n0",
    env: dict[str, str] | None = None,
    work: Sequence[str] = WORK,
) -> Running:
    """Starts a job with spare hosts on a node; unless it is resumed, returns when it trains."""
    # Nothing comes of this drill, but that it is told.
    drill = () if "--resume" in flags else ("--inject", "rank=0,step=10,raise")
    if work is not WORK:
        drill = ()
    size = sum(int(host.partition(":")[2]) for host in hosts.split(","))
    job = ["run", "--verbose", "-np", str(size), "-H", hosts, "--spare-hosts", spares]
    program = [sys.executable, "-m", "hvd_ft.cli"]
    enter = [*program, "cluster", "exec", "--name", cluster.name, node, "--"]
    process = subprocess.Popen(
        [*enter, *program, *job, *flags, *drill, *work],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )
    running = Running(process)
    threading.Thread(target=running.listen, daemon=True).start()
    if drill:
        running.await_line("hvdft: drill")
    return running


def expect_clear(cluster: Cluster, *names: str, seconds: float = 20.0) -> None:
    """No process and no file of a job is left on these nodes."""
    deadline = time.monotonic() + seconds
    look = "pgrep -f '[s]ums_script|[h]vd_ft.agent' || :; ls -d /dev/shm/hvdft-*/* || :"
    while left := [found for node in names if (found := cluster.sh(node, look))]:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


@pytest.mark.shows(later=True)
@pytest.mark.parametrize(
    ("hosts", "lost"), [("n0:2,n1:1,n2:1", "2"), ("n1:2,n0:1,n2:1", "0-1"), ("n0:1,n1:3", "1-3")]
)
def test_a_fit_ends_with_the_same_weights(
    nodes: Cluster, tmp_path: Path, hosts: str, lost: str
) -> None:
    """And optimizer, and statistics, on every rank: what was shared, and what was a rank's own."""
    work = [sys.executable, str(SCRIPTS / "lost_host_script.py"), "2"]
    ends = []
    killed = tmp_path / "killed"  # the job does not end before
    for kills in (False, True):
        env = {"AWAIT": str(killed)} if kills else {}
        running = start(nodes, hosts, "n3:3", work=work, env=env)
        if kills:
            running.await_line("20 steps are done")
            disturb(nodes, "kill", node="n1")
            killed.touch()
        code, out, err = running.end()
        assert code == 0, err
        ends.append(sorted(line for line in out.splitlines() if line.startswith("END")))
    assert f"{lost} continue" in err and "is back after" in err, err
    assert ends[0] == ends[1] and len(ends[0]) == 4, err
    replayed = [int(ops) for ops in re.findall(r"is back after .* s: (\d+) ops", err)]
    assert max(replayed) < 40, "from a snapshot, not from the beginning"


@pytest.mark.shows(later=True)
@pytest.mark.parametrize("hosts", ["n0:2,n1:1,n2:1", "n1:2,n0:1,n2:1"])
def test_a_job_that_went_on_from_a_checkpoint_replaces_a_host_and_the_one_that_replaced_it(
    nodes: Cluster, tmp_path: Path, hosts: str
) -> None:
    """And every rank ends with what it would have had without any of that."""
    folder, killed = tmp_path / "c", tmp_path / "killed"
    work = [sys.executable, str(SCRIPTS / "lost_host_script.py"), "2"]
    undisturbed = start(nodes, hosts, "n3:2,n4:2", work=work).end()
    checkpoints = ["--checkpoint-dir", str(folder), "--checkpoint-interval", "0.5"]
    env = {"AWAIT": str(killed)}
    first = start(nodes, hosts, "n3:2,n4:2", *checkpoints, work=work, env=env)
    first.await_line("40 steps are done")
    deadline = time.monotonic() + HANG_SECONDS
    while not [each for each in find(folder) if each.manifest]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    first.process.send_signal(signal.SIGTERM)
    assert first.end()[0] == 143, first.err
    resumed = start(
        nodes, hosts, "n3:2,n4:2", *checkpoints, "--resume", str(folder), work=work, env=env
    )
    resumed.await_line("40 steps are done")
    for lost, new in (("n1", "n3"), ("n3", "n4")):
        assert nodes.hvdft("kill", lost).code == 0
        resumed.await_line(f"on {new} (epoch")
    killed.touch()
    code, out, err = resumed.end()
    assert code == 0, err
    assert f"continuing from {folder}" in err, err
    ends = [sorted(x for x in text.splitlines() if "END" in x) for text in (out, undisturbed[1])]
    assert ends[0] == ends[1] and len(ends[0]) == 4, err


@pytest.mark.parametrize("hosts", ["n0:2,n1:1,n2:1", "n1:2,n0:1,n2:1"])
def test_the_host_that_replaces_a_lost_one_writes_its_share_of_checkpoints(
    nodes: Cluster, tmp_path: Path, hosts: str
) -> None:
    folder = tmp_path / "c"
    flags = ["--checkpoint-dir", str(folder), "--checkpoint-interval", "0.5"]
    work = [sys.executable, str(SCRIPTS / "lost_host_script.py"), "6"]
    killed = tmp_path / "killed"  # the job does not end before
    env = {"AWAIT": str(killed)}
    running = start(nodes, hosts, "n3:3", *flags, "--checkpoint-keep", "99", work=work, env=env)
    running.await_line("20 steps are done")
    disturb(nodes, "kill", node="n1")
    killed.touch()
    running.await_line("is back after")
    before = {each.name for each in find(folder)}
    code, out, err = running.end()
    assert code == 0, err
    assert len([line for line in out.splitlines() if line.startswith("END")]) == 4, err
    states = {each.name: each.state for each in find(folder)}
    assert set(states.values()) == {"complete"} and states.keys() > before, (states, err)


def ends_well(running: Running, *incarnations: int) -> str:
    """Every rank has had the right sums, in this incarnation; returns what was said."""
    code, out, err = running.end()
    assert code == 0, err
    found = re.findall(r"SUMS (\d+) (\d+) (\w+)", out)
    right = digest(OPS, SIZE, len(incarnations))
    expected = [(str(rank), str(number), right) for rank, number in enumerate(incarnations)]
    assert sorted(found) == expected, err
    return err


@pytest.mark.parametrize(
    ("hosts", "place", "incarnations"),
    [
        ("n0:2,n1:1,n2:1", "rank 2 continues", [0, 0, 1, 0]),
        ("n1:2,n0:1,n2:1", "ranks 0-1 continue", [1, 1, 0, 0]),
    ],
    ids=["a host", "the host of rank 0"],
)
def test_a_host_that_dies_is_replaced_within_the_limit(
    nodes: Cluster, hosts: str, place: str, incarnations: list[int]
) -> None:
    running = start(nodes, hosts, "n3:2")
    disturb(nodes, "kill")
    killed = time.monotonic()
    running.await_line(f"host n1 is lost; its {place} on n3 (epoch 1)")
    assert time.monotonic() - killed < DETECTION_SECONDS + LATE_SECONDS
    running.await_line("the job's hosts have changed; starting generation 1 of its agents")
    assert "starting generation 2" not in ends_well(running, *incarnations)
    expect_clear(nodes, "n0", "n2", "n3")


def test_a_host_and_later_the_one_that_took_its_place(nodes: Cluster) -> None:
    running = start(nodes, "n0:1,n1:2,n2:1", "n3:2,n4:2")
    disturb(nodes, "kill", node="n1")
    running.await_line("rank 1 is back")
    disturb(nodes, "kill", node="n3")
    running.await_line("host n3 is lost; its ranks 1-2 continue on n4 (epoch 2)")
    ends_well(running, 0, 2, 2, 0)


def test_two_hosts_at_once(nodes: Cluster) -> None:
    running = start(nodes, "n0:1,n1:1,n2:1", "n3:1,n4:1")
    for node in ("n1", "n2"):
        disturb(nodes, "kill", node=node)
    assert "starting generation 3" not in ends_well(running, 0, 1, 1)  # each may be noticed apart
    expect_clear(nodes, "n0", "n3", "n4")


def test_a_host_together_with_that_of_its_buddy(nodes: Cluster) -> None:
    """What only its ranks had is nowhere: nothing continues with something else."""
    running = start(nodes, "n1:1,n2:1,n0:1", "n3:1,n4:1")
    for node in ("n1", "n2"):
        disturb(nodes, "kill", node=node)
    code, out, err = running.end()
    assert code != 0 and "SUMS" not in out
    assert "the host of rank 0 was lost together with that of rank 1, which kept a copy" in err
    expect_clear(nodes, "n0", "n3", "n4")


def test_a_spare_host_that_is_dead_when_it_is_needed(nodes: Cluster) -> None:
    running = start(nodes, "n0:2,n1:1", "n2:1,n3:1,n4:1")
    disturb(nodes, "kill", node="n2")  # nobody looks at it before it is needed
    disturb(nodes, "kill", node="n1")
    running.await_line("spare host n2 cannot be reached")
    running.await_line("host n1 is lost; its rank 2 continues on n3 (epoch 1)")
    ends_well(running, 0, 0, 1)
    expect_clear(nodes, "n0", "n3", "n4")


def test_a_host_that_is_cut_off_stands_still_and_goes_on_if_it_was_not_replaced(
    nodes: Cluster,
) -> None:
    running = start(nodes, "n0:2,n1:1,n2:1", "n3:1")
    disturb(nodes, "kill", node="n3")
    disturb(nodes, "cut", node="n1")
    running.await_line("spare host n3 cannot be reached")
    running.await_line("there is no spare host for n1 (rank 2); waiting for it")
    states = nodes.sh("n1", "ps -ww -eo stat,args | grep '[s]ums_script'").split()
    assert states[0].startswith("T"), states
    disturb(nodes, "heal", node="n1")
    running.await_line("host n1 (rank 2) answers again after")
    ends_well(running, 0, 0, 0, 0)
    expect_clear(nodes, "n0", "n1", "n2")


def test_a_host_that_comes_back_is_out_and_then_a_spare_host(nodes: Cluster) -> None:
    """With its old arenas: what it still has ends, and it takes the next place afresh."""
    running = start(nodes, "n0:1,n1:1,n2:1", "n3:1")
    disturb(nodes, "cut", node="n1")
    running.await_line("host n1 is lost; its rank 1 continues on n3 (epoch 1)")
    states = nodes.sh("n1", "ps -ww -eo stat,args | grep '[s]ums_script'").split()
    assert states[0].startswith("T"), states
    disturb(nodes, "heal", node="n1")
    running.await_line("host n1 is back and has lost its place: it is a spare host from now on")
    expect_clear(nodes, "n1")
    running.await_line("rank 1 is back")
    disturb(nodes, "kill", node="n3")
    running.await_line("host n3 is lost; its rank 1 continues on n1 (epoch 2)")
    ends_well(running, 0, 2, 0)
    expect_clear(nodes, "n0", "n1", "n2")


def test_another_launcher_takes_over_when_the_first_ones_host_is_dead(
    nodes: Cluster, tmp_path: Path
) -> None:
    env = {"HOROVOD_FT_SHARED_DIR": str(tmp_path)}
    hosts, spares = "n0:2,n1:1,n2:1", "n3:2"
    running = start(nodes, hosts, spares, env=env)
    (found,) = re.findall(r"hvdft: job (\w+): ", "".join(running.err))
    refused = start(nodes, hosts, spares, "--resume", found, node="n1", env=env)
    code, _, err = refused.end()
    assert code == 2 and f"job {found} is led by hvdft run on n0 (pid " in err, err
    disturb(nodes, "kill", node="n0")
    running.process.wait(60)
    second = start(nodes, hosts, spares, "--resume", found, node="n1", env=env)
    second.await_line("waiting 15 s for its end")
    second.await_line("host n0 is lost; its ranks 0-1 continue on n3 (epoch 1)")
    ends_well(second, 1, 1, 0, 0)
    expect_clear(nodes, "n1", "n2", "n3")
    assert not list(tmp_path.glob("hvdft-*"))
