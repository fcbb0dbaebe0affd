"""Loops in which ranks rarely or never come to the same boundary: no hang, and the result is right.

Each of these jobs has snapshots that ranks would share if they could.
"""

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from conftest import SCRIPTS, Cluster, Ended, RunHvdft

SCRIPT = str(SCRIPTS / "odd_loops_script.py")
WORKER = ["env", "HOROVOD_FT_SNAPSHOT_SECONDS=2", sys.executable, SCRIPT]
RANKS = range(3)
Array = np.ndarray
START = np.arange(800_000) % 100
PLACES = np.arange(800_000) % 997  # so that what is in the wrong place shows


def step(weights: Array, number: int, ranks: Iterable[int] = RANKS) -> Array:
    return sum(((3 * weights + rank + number) % 17 for rank in ranks), np.zeros_like(weights))


def short() -> list[Array]:
    weights = START
    for loop in range(10):
        for number in range(loop % 4):
            weights = step(weights, number)
    return [weights] * 3


def quiet() -> list[Array]:
    weights = START
    for number in range(24):
        weights = step(weights, number, (0, 2))
    ends = [weights, START, weights]
    return [sum((3 * end + rank) % 17 for rank, end in enumerate(ends))] * 3


def joining(batches: list[int], ends: list[Array]) -> list[Array]:
    """Ranks train as many batches as they have; all take over what the last one has."""
    for number in range(max(batches)):
        still = [rank for rank in RANKS if number < batches[rank]]
        total = sum((3 * ends[rank] + rank + number) % 17 for rank in still)
        ends = [total if rank in still else ends[rank] for rank in RANKS]
    return [ends[batches.index(max(batches))]] * 3


def joined() -> list[Array]:
    ends = [START] * 3
    for turn in range(3):
        ends = joining([4 + 5 * ((rank + turn) % 3) for rank in RANKS], ends)
    return ends


def joined_steps() -> list[Array]:
    return joining([6, 10, 14], [START] * 3)


def many(steps: int) -> list[Array]:
    weights = START
    for number in range(steps):
        weights = step(weights, number)
    return [weights] * 3


# What each kind gives, where it is killed, and whether ranks say that they go on alone.
KINDS: dict[str, tuple[Callable[[], list[Array]], list[str], bool]] = {
    "short": (
        short,
        ["rank=0,step=3", "rank=1,point=snapshot_delivered", "rank=2,op=20,point=copy_out"],
        False,
    ),
    "quiet": (quiet, ["rank=2,step=12", "rank=1,step=20"], True),
    "joined": (joined, ["rank=0,op=14", "rank=2,step=1", "rank=1,step=2"], False),
    "joined_steps": (joined_steps, ["rank=0,step=5", "rank=2,step=12", "rank=1,step=9"], False),
    "intervals": (
        lambda: many(26),
        [
            "rank=0,step=5",
            "rank=1,step=13",
            "rank=2,point=snapshot_write",
            "rank=0,incarnation=1,step=25",
        ],
        False,
    ),
    "changing": (
        lambda: many(24),
        [
            "rank=1,step=5",
            "rank=2,step=11",
            "rank=0,step=15",
            "rank=1,incarnation=1,step=17",
            "rank=2,incarnation=1,step=21",
        ],
        False,
    ),
}


def check_results(kind: str, ended: Ended) -> None:
    results = re.findall(r"^RESULT (\d) (\d+) (\d+)$", ended.out, re.MULTILINE)
    weights = KINDS[kind][0]()
    private = sum(weights) if kind == "changing" else 0 * START
    sums = [[str((x * PLACES).sum()) for x in (weights[rank], private)] for rank in RANKS]
    expected = [(str(rank), *sums[rank]) for rank in RANKS]
    assert sorted(set(results)) == expected, ended.err


@pytest.mark.shows(later=True)
@pytest.mark.parametrize("kind", KINDS)
def test_odd_loops(run_hvdft: RunHvdft, tmp_path: Path, kind: str) -> None:
    _, drills, alone = KINDS[kind]
    flags = [word for drill in drills for word in ("--inject", drill)]
    ended = run_hvdft(
        ["run", "-np", "3", *flags, *WORKER, kind, str(tmp_path / "meeting")],
        env={"HOROVOD_FT_MAX_FAILURES": "9"},
    )
    assert ended.code == 0, ended.err
    struck = re.findall(r"^hvdft: drill: (.*)$", ended.err, re.MULTILINE)
    assert sorted(struck) == sorted(drills), ended.err
    check_results(kind, ended)
    told = re.findall(r"rank (\d) takes its snapshots alone", ended.err)
    lives = {rank: 1 + sum(f"rank={rank}" in drill for drill in drills) for rank in RANKS}
    assert all(told.count(str(rank)) <= lives[rank] for rank in RANKS), "said once"
    assert bool(told) == alone, ended.err


@pytest.mark.shows(later=True)
def test_a_job_has_as_many_loops_as_its_script_begins(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    """Killed in the third, and twice beyond the 64th, in which a table of loops once ended."""
    ended = run_hvdft(
        ["run", "-np", "3", sys.executable, SCRIPT, "many", str(tmp_path / "meeting")],
        env={"HOROVOD_FT_MAX_FAILURES": "9"},
    )
    assert ended.code == 0, ended.err
    died = re.findall(r"rank (\d) died \(signal 9", ended.err)
    assert sorted(died) == ["0", "1", "1", "1"], ended.err
    weights = START
    for _ in range(70):
        for number in range(2):
            weights = step(weights, number)
    total = str((weights * PLACES).sum())
    results = re.findall(r"^RESULT (\d) (\d+) 0$", ended.out, re.MULTILINE)
    assert sorted(set(results)) == [(str(rank), total) for rank in RANKS], ended.err


@pytest.mark.parametrize("kind", KINDS)
def test_odd_loops_on_three_nodes(cluster: Cluster, tmp_path: Path, kind: str) -> None:
    """Nodes keep snapshots for each other; nobody waits long for one that does not come."""
    job = ["run", "-np", "3", "-H", "n0:1,n1:1,n2:1", *WORKER, kind]
    hvdft = [sys.executable, "-m", "hvd_ft.cli"]
    ended = cluster.hvdft("run", "--", *hvdft, *job, str(tmp_path / "meeting"))
    assert ended.code == 0, ended.err
    check_results(kind, ended)
    for said in ("takes its snapshots alone", "no longer waits for other hosts' snapshots"):
        told = re.findall(rf"rank (\d) {said}", ended.err)
        assert len(told) == len(set(told)), "said once"
