"""PyTorch jobs on three nodes: ranks and agents that die, and lost hosts with a spare.

Every rank ends with the bits of an undisturbed job on the same nodes.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from conftest import SCRIPTS, Cluster, Once, running_cluster
from test_lost_hosts import start
from test_network import disturb
from test_torch_kills import drills_of

pytestmark = pytest.mark.timeout(600)
HOSTS = "n0:2,n1:1,n2:1"
RANKS = 4
PYTHON = [sys.executable, "-W", "ignore"]
STYLES = {
    "loop": ["torch_state_script.py", "plain"],
    "ddp": ["torch_ddp_script.py", "plain", "snapshots"],
    "loop, no snapshots": ["torch_state_script.py", "bare"],
    "ddp, no snapshots": ["torch_ddp_script.py", "plain", "none"],
}
# Rank 3 is alone on its node, and so is agent 2.
BY_STEP = {
    "ranks": ["rank=3,step=4", "rank=0,step=7", "rank=3,incarnation=1,point=replay"],
    "an agent": ["agent=2,op=14"],
    "both": ["rank=1,step=3", "agent=0,op=14", "rank=2,step=8"],
}
# Without snapshots no steps are counted. All ranks execute every op; few contribute to a broadcast.
AT = "point=executed,op="
BY_OP = {
    "ranks": [f"rank=3,{AT}20", f"rank=0,{AT}35", "rank=3,incarnation=1,point=replay"],
    "an agent": [f"agent=2,{AT}30"],
    "both": [f"rank=1,{AT}25", f"agent=0,{AT}40", f"rank=2,{AT}45"],
}
Results = list[tuple[str, str, str]]


def train(cluster: Cluster, work: Sequence[str], drills: Sequence[str] = ()) -> tuple[Results, str]:
    """Returns each rank's digests, of the weights and of what is its own, and what was said."""
    script, *words = work
    inject = [word for drill in drills for word in ("--inject", drill)]
    job = ["run", "-np", str(RANKS), "-H", HOSTS, "--no-live", *inject]
    hvdft = [sys.executable, "-m", "hvd_ft.cli", *job, *PYTHON, str(SCRIPTS / script), *words]
    ended = cluster.hvdft("run", "--", "env", "HOROVOD_FT_MAX_FAILURES=10", *hvdft)
    assert ended.code == 0, ended.err
    struck = re.findall(r"^hvdft: drill: (.*)$", ended.err, re.MULTILINE)
    assert sorted(struck) == sorted(drills), ended.err
    # A rank that dies at its end says it twice.
    found = sorted({*re.findall(r"^RESULT (\d) \d (\S+) (\S+)$", ended.out, re.MULTILINE)})
    assert [rank for rank, *_ in found] == [str(rank) for rank in range(RANKS)], ended.out
    assert len({weights for _, weights, _ in found}) == 1, found
    return found, ended.err


def undisturbed(cluster: Cluster, once: Once, style: str, work: Sequence[str]) -> str:
    """Returns the digests of all ranks, as text."""

    def whole(folder: Path) -> None:
        (folder / "results").write_text(repr(train(cluster, [*work, str(folder)])[0]))

    return (once(f"torch-nodes-{style}", whole) / "results").read_text()


def check(cluster: Cluster, once: Once, style: str, drills: Sequence[str]) -> str:
    """Returns what the job has said whose ranks or agents died."""
    found, said = train(cluster, STYLES[style], drills)
    assert repr(found) == undisturbed(cluster, once, style, STYLES[style])
    return said


@pytest.mark.shows(later=True)
def test_a_rank_and_an_agent_of_a_ddp_job_die_and_nothing_changes(
    cluster: Cluster, once: Once
) -> None:
    said = check(cluster, once, "ddp", ["rank=3,step=4", "agent=2,op=40"])
    assert "starting generation 1" in said


@pytest.mark.long
@pytest.mark.parametrize("name", BY_STEP)
@pytest.mark.parametrize("style", STYLES)
def test_deaths_change_nothing(cluster: Cluster, once: Once, style: str, name: str) -> None:
    drills = (BY_OP if "no snapshots" in style else BY_STEP)[name]
    said = check(cluster, once, style, drills)
    agents = [drill for drill in drills if drill.startswith("agent")]
    assert ("starting generation 1" in said) == bool(agents)


def on_nodes(drills: Sequence[str]) -> list[str]:
    """Returns drills of two ranks for those of rank 0 and of rank 3, which is alone on its node."""
    return [drill.replace("rank=1,", "rank=3,") for drill in drills]


@pytest.mark.long
@pytest.mark.parametrize(
    ("style", "name"), [(style, name) for style in STYLES for name in drills_of(style)]
)
def test_ranks_killed_at_every_point_change_nothing(
    cluster: Cluster, once: Once, style: str, name: str
) -> None:
    check(cluster, once, style, on_nodes(drills_of(style)[name]))


@pytest.fixture
def nodes() -> Iterator[Cluster]:
    with running_cluster("-n", "4") as running:
        yield running


@pytest.mark.long
@pytest.mark.parametrize("style", ["loop", "ddp"])
@pytest.mark.parametrize(
    ("hosts", "lost"),
    [(HOSTS, "2"), ("n1:2,n0:1,n2:1", "0-1")],
    ids=["a host", "the host of rank 0"],
)
def test_a_spare_host_takes_the_place_of_a_lost_one(
    nodes: Cluster, tmp_path: Path, hosts: str, lost: str, style: str
) -> None:
    """From a snapshot: weights, optimizer, statistics and generators are the same on every rank."""
    work = [*PYTHON, str(SCRIPTS / "torch_lost_host_script.py"), style, "2"]
    whole = start(nodes, hosts, "n3:3", work=work).end()
    killed = tmp_path / "killed"  # the job does not end before
    running = start(nodes, hosts, "n3:3", work=work, env={"AWAIT": str(killed)})
    running.await_line("20 steps are done")
    disturb(nodes, "kill", node="n1")
    killed.touch()
    code, out, err = running.end()
    assert (whole[0], code) == (0, 0), err
    assert f"{lost} continue" in err, err
    ends = [sorted(re.findall(r"^END .*$", text, re.MULTILINE)) for text in (whole[1], out)]
    assert ends[0] == ends[1] and len(ends[0]) == RANKS, err
    replayed = [int(ops) for ops in re.findall(r"is back after .* s: (\d+) ops", err)]
    # Four ops a step at most, every 8 steps a snapshot, and one is kept beside the latest.
    assert replayed and max(replayed) < 100, "from a snapshot, not from the beginning"
