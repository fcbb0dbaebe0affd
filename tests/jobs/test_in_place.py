"""Hosts are lost or given up, and their ranks leave the running job; the others keep going."""

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import pytest
from conftest import SCRIPTS, Cluster, running_cluster
from test_lost_hosts import expect_clear
from test_network import Running, disturb
from test_resizing_jobs import ends, start
from test_rosters import STEPS, trained

WORK = [sys.executable, "-W", "ignore", str(SCRIPTS / "roster_script.py")]


@pytest.fixture
def nodes() -> Iterator[Cluster]:
    with running_cluster("-n", "4") as cluster:
        yield cluster


class InPlace:
    """A job of roster_script.py whose hosts are lost while rank 0 waits after 20 steps.

    Args:
        nodes: where.
        folder: for files.
        flags: of hvdft run.
        returns: whether hosts come back while rank 0 waits after 28 steps.
        work: another script that waits twice, and how many steps are done then.
        env: more variables.
    """

    def __init__(
        self,
        nodes: Cluster,
        folder: Path,
        *flags: str,
        returns: bool = False,
        work: tuple[Sequence[str], int, int] = (WORK, 20, 28),
        env: Mapping[str, str] | None = None,
    ) -> None:
        script, first, self.second = work
        self.go_on, self.end_too = folder / "go on", folder / "end"
        keep = ["--checkpoint-dir", str(folder / "c")]
        env = {"AWAIT": str(self.go_on), **(env or {})}
        if returns:
            env["AWAIT_MORE"] = str(self.end_too)
        self.running: Running = start(nodes, *flags, "--in-place", *keep, work=script, env=env)
        self.running.await_line(f"{first} steps")

    def shrink(self) -> None:
        self.go_on.touch()
        self.running.await_line(f"{self.second} steps")

    def end(self) -> tuple[str, str]:
        self.go_on.touch()
        self.end_too.touch()
        code, out, err = self.running.end()
        assert code == 0, err
        return out, err


def check(out: str, err: str, before: int, after: int) -> list[int]:
    """Checks what the ranks end with; returns with how many ranks each step was done."""
    changes = re.findall(r"from step (\d+) on the job has (\d) ranks instead of (\d)", err)
    sizes, size = list[int](), before
    for step, fewer, more in changes:
        assert int(more) == size
        sizes += [size] * (int(step) - len(sizes))
        size = int(fewer)
    assert size == after, changes
    sizes += [size] * (STEPS - len(sizes))
    assert [line.split("; ")[1] for line in ends(out)] == [
        f"{trained(sizes):.0f} {sizes} {len(changes)} {after}"
    ] * after
    return sizes


@pytest.mark.shows(later=True)
def test_the_ranks_of_a_lost_host_leave(nodes: Cluster, tmp_path: Path) -> None:
    hosts = ["-np", "4", "-H", "n0:2,n1:1,n2:1"]
    job = InPlace(nodes, tmp_path, *hosts, "--min-np", "2")
    disturb(nodes, "kill", node="n1")
    job.running.await_line("host n1 is lost; its rank 2 continues on n2 until it leaves the job")
    out, err = job.end()
    assert check(out, err, 4, 3).count(4) in (21, 22)
    assert not re.search(r"rank \d+ died", err)  # who stays was not started again
    expect_clear(nodes, "n0", "n2")


def test_two_hosts_one_after_the_other_and_a_death_on_the_way(
    nodes: Cluster, tmp_path: Path
) -> None:
    """The second one has the guest of the first; a rank that leaves dies before it has left."""
    drill = ["--inject", "rank=2,incarnation=1,point=restore"]
    job = InPlace(nodes, tmp_path, "-np", "4", "-H", "n0:2,n1:1,n2:1", "--min-np", "2", *drill)
    disturb(nodes, "kill", node="n1")
    job.running.await_line("its rank 2 continues on n2 until it leaves the job (epoch 1)")
    job.running.await_line("hvdft: drill: rank=2")
    disturb(nodes, "kill", node="n2")
    job.running.await_line("its rank 3 continues on n0 until it leaves the job (epoch 3)")
    out, err = job.end()
    # Rank 2 may have been announced to leave before the second host was lost.
    assert check(out, err, 4, 2).count(4) in (21, 22)
    assert not re.search(r"rank [01] died", err), err
    expect_clear(nodes, "n0")


def test_the_ranks_of_a_host_that_is_not_named_any_more_leave(
    nodes: Cluster, tmp_path: Path
) -> None:
    job = InPlace(nodes, tmp_path, *named(tmp_path, "n0:2 n1:1 n2:1"))
    named(tmp_path, "n0:2 n2:1")
    job.running.await_line("the hosts have changed (n1 less); starting generation 1")
    out, err = job.end()
    assert check(out, err, 4, 3).count(4) in (21, 22)
    assert "died" not in err
    expect_clear(nodes, "n0", "n1", "n2")


def check_back(out: str, err: str) -> None:
    """Checks a job of 4 ranks of which one left after 21 steps and returned after 29."""
    sizes = check(out, err, 4, 4)
    assert [sizes.index(3), sizes.index(4, 25)] in ([21, 29], [21, 30], [22, 29], [22, 30]), sizes


def named(folder: Path, hosts: str) -> list[str]:
    """Has a script name hosts; `hosts` may be written into the file again."""
    file = folder / "hosts"
    file.write_text(hosts.replace(" ", "\n"))
    return ["-np", "4", "--host-discovery-script", f"cat {file}", "--min-np", "2"]


def given_up_and_named_again(nodes: Cluster, folder: Path, *flags: str) -> InPlace:
    """Runs a job whose host n1 is given up, and is named again when its rank 2 has left."""
    job = InPlace(nodes, folder, *named(folder, "n0:2 n1:1 n2:1"), *flags, returns=True)
    named(folder, "n0:2 n2:1")
    job.running.await_line("the hosts have changed (n1 less); starting generation 1")
    job.shrink()
    named(folder, "n0:2 n1:1 n2:1")
    return job


@pytest.mark.shows(later=True)
def test_a_host_that_is_found_takes_the_place_of_the_lost_one(
    nodes: Cluster, tmp_path: Path
) -> None:
    hosts = named(tmp_path, "n0:2 n1:1 n2:1")
    job = InPlace(nodes, tmp_path, *hosts, returns=True)
    disturb(nodes, "kill", node="n1")
    job.running.await_line("its rank 2 continues on n2 until it leaves the job (epoch 1)")
    job.shrink()
    named(tmp_path, "n0:2 n1:1 n2:1 n3:1")
    job.running.await_line("rank 2 returns to the job on host n3 (epoch 2)")
    job.running.await_line("rank 2 is back, and waits for the next step boundary")
    out, err = job.end()
    check_back(out, err)
    assert not re.search(r"rank [013] died", err)  # who stays was not started again
    expect_clear(nodes, "n0", "n2", "n3")


def test_a_host_that_was_given_up_is_named_again(nodes: Cluster, tmp_path: Path) -> None:
    job = given_up_and_named_again(nodes, tmp_path)
    job.running.await_line("rank 2 returns to the job on host n1 (epoch 2)")
    job.running.await_line("rank 2 is back, and waits for the next step boundary")
    out, err = job.end()
    check_back(out, err)
    assert "died" not in err
    expect_clear(nodes, "n0", "n1", "n2")


def test_a_rank_returns_in_a_later_part_of_the_job(nodes: Cluster, tmp_path: Path) -> None:
    """Agents on a host that is new in that part learn from the others that it was resumed."""
    hosts = ["-np", "3", "--max-np", "4", *named(tmp_path, "n0:2 n1:1")[2:]]
    first = tmp_path / "first"
    env = {"AWAIT_FIRST": str(first)}
    job = InPlace(nodes, tmp_path, *hosts, returns=True, work=(WORK, 10, 28), env=env)
    named(tmp_path, "n0:2 n1:1 n2:1")
    first.touch()
    job.running.await_line("the job continues with 4 ranks on n0:2,n1:1,n2:1")
    job.running.err.clear()  # the first part may have come to 20 steps as well
    job.running.await_line("20 steps")
    disturb(nodes, "kill", node="n1")
    job.running.await_line("its rank 2 continues on n2 until it leaves the job")
    job.shrink()
    named(tmp_path, "n0:2 n1:1 n2:1 n3:1")
    job.running.await_line("rank 2 returns to the job on host n3")
    job.running.await_line("rank 2 is back, and waits for the next step boundary")
    out, err = job.end()
    ended = {line.split("; ")[1] for line in ends(out)}
    sizes = json.loads(ended.pop().split(" ", 1)[1].rsplit(" ", 2)[0])
    assert not ended and len(ends(out)) == 4, out
    assert [size for size, _ in groupby(sizes)] == [3, 4, 3, 4]
    assert f"; {trained(sizes):.0f} " in out
    assert not re.search(r"Traceback|failed \d+ times", err), err


@pytest.mark.parametrize(
    "drills",
    [
        # The rank that returns: before others know, when it has returned, with its snapshot.
        ["rank=2,incarnation=1,point=return"],
        ["rank=2,incarnation=1,point=contribute"],
        ["rank=2,incarnation=1,point=snapshot_publish", "rank=2,incarnation=2,step=35"],
        # Who has stayed: at the boundary, and in a replay of it.
        ["rank=0,step=29"],
        ["rank=1,step=30", "rank=1,incarnation=1,step=33", "rank=3,step=29"],
    ],
)
def test_deaths_while_a_rank_returns(nodes: Cluster, tmp_path: Path, drills: list[str]) -> None:
    inject = [word for drill in drills for word in ("--inject", drill)]
    job = given_up_and_named_again(nodes, tmp_path, *inject)
    job.running.await_line("rank 2 is back, and waits for the next step boundary")
    out, err = job.end()
    check_back(out, err)
    assert err.count("hvdft: drill: ") == len(drills), err


def test_the_host_of_a_rank_that_returns_is_lost(nodes: Cluster, tmp_path: Path) -> None:
    """The rank stays out, and returns on yet another host."""
    job = given_up_and_named_again(nodes, tmp_path)
    job.running.await_line("rank 2 returns to the job on host n1 (epoch 2)")
    disturb(nodes, "kill", node="n1")
    job.running.await_line("host n1 is lost; its rank 2 continues on n2 until it leaves the job")
    named(tmp_path, "n0:2 n1:1 n2:1 n3:1")
    job.running.await_line("rank 2 returns to the job on host n3 (epoch 4)")
    job.running.await_line("rank 2 is back, and waits for the next step boundary")
    out, err = job.end()
    check_back(out, err)
    expect_clear(nodes, "n0", "n2", "n3")


def test_a_rank_that_comes_back_too_late_stays_out(nodes: Cluster, tmp_path: Path) -> None:
    drill = ["--inject", "rank=2,incarnation=1,point=attach"]  # it takes a while longer
    job = given_up_and_named_again(nodes, tmp_path, *drill)
    job.running.await_line("this host is new in the job")
    out, err = job.end()
    assert check(out, err, 4, 3).count(4) in (21, 22)
    assert "rank 2 came back too late for training loop 0, and stays out of the job" in err
    expect_clear(nodes, "n0", "n1", "n2")


def test_what_cannot_be_in_place_goes_on_from_a_checkpoint(nodes: Cluster, tmp_path: Path) -> None:
    """Rank 0's host is lost: it has the log."""
    job = InPlace(nodes, tmp_path, "-np", "4", "-H", "n1:1,n0:2,n2:1", "--min-np", "2")
    disturb(nodes, "kill", node="n1")
    job.running.await_line("the job continues with 3 ranks on n0:2,n2:1")
    out, err = job.end()
    assert len(ends(out)) == 3, err


def test_ranks_that_cannot_begin_elsewhere_end_the_part(nodes: Cluster, tmp_path: Path) -> None:
    """What a lost rank has sent is known nowhere; the job continues from a checkpoint."""
    hosts = ["-np", "4", "-H", "n0:2,n1:1,n2:1"]
    job = InPlace(nodes, tmp_path, *hosts, "--min-np", "2", env={"SENDS": "1"})
    disturb(nodes, "kill", node="n1")
    job.running.await_line("its rank 2 continues on n2 until it leaves the job (epoch 1)")
    job.running.await_line("ranks of this job have sent messages to each other")
    job.running.await_line("the job continues with 3 ranks on n0:2,n2:1")
    out, err = job.end()
    assert len(ends(out)) == 3, err
