"""Ranks leave a running job at a step boundary; the others go on in their processes."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from conftest import SCRIPTS, Cluster, Ended, RunHvdft

from hvd_ft.checkpoint.catalogue import find

WORK = [sys.executable, "-W", "ignore", str(SCRIPTS / "roster_script.py")]
STEPS, VALUES = 40, 5000


def trained(sizes: Sequence[int]) -> float:
    """What any run ends with that has had so many ranks in each step, numbered from 0."""
    weights = np.arange(VALUES, dtype=np.float64)
    for step, size in enumerate(sizes):
        weights = sum((3 * weights + rank + step) % 17 for rank in range(size))
    return float(weights.sum())


def inject(*drills: str) -> list[str]:
    return [word for drill in drills for word in ("--inject", drill)]


def check(ended: Ended, before: int, places: Sequence[str], step: int) -> None:
    """Checks what the ranks that are left print, by their new numbers."""
    assert ended.code == 0, ended.err
    after = len(places)
    sizes = [before] * step + [after] * (STEPS - step)
    lines = [line for line in ended.out.splitlines() if line.startswith("END")]
    assert sorted(lines) == [
        f"END {rank} of {after}: {place}; {trained(sizes):.0f} {sizes} 1 {after}"
        for rank, place in enumerate(places)
    ]


def two(hosts: int = 1) -> list[str]:
    return ["0 of 2, 0 of 1", "1 of 2, 0 of 1"] if hosts == 1 else ["0 of 1, 0 of 2"] * 2


@pytest.mark.shows(later=True)
@pytest.mark.parametrize("leaving", ["2-3", "1-2"])
def test_ranks_leave_and_the_others_are_numbered_anew(run_hvdft: RunHvdft, leaving: str) -> None:
    ended = run_hvdft(["run", "-np", "4", *inject(f"leave={leaving},step=20"), *WORK])
    check(ended, 4, two(), 21)
    first, last = leaving.split("-")
    line = f"from step 21 on the job has 2 ranks instead of 4: ranks {first}, {last} left"
    assert ended.err.count(line) == 1, ended.err
    assert len(re.findall(r"rank \d leaves the job at step 21", ended.err)) == 2
    assert "died" not in ended.err


@pytest.mark.parametrize(
    "drills",
    [
        # Just before the boundary, one that stays and one that leaves; at it; behind it.
        ["rank=1,step=21", "rank=3,step=21"],
        ["rank=0,point=snapshot_publish,step=21", "rank=2,point=end"],
        ["rank=1,point=snapshot_published,step=21", "rank=3,point=exit"],
        ["rank=1,step=30", "rank=0,step=33", "rank=1,incarnation=1,point=restore"],
    ],
)
def test_kills_around_the_boundary_change_nothing(run_hvdft: RunHvdft, drills: list[str]) -> None:
    ended = run_hvdft(["run", "-np", "4", *inject("leave=2-3,step=20", *drills), *WORK])
    check(ended, 4, two(), 21)
    assert ended.err.count("hvdft: drill: ") == len(drills) + 1, ended.err


def test_ranks_leave_one_after_the_other(run_hvdft: RunHvdft) -> None:
    drills = ["leave=1,step=8", "leave=3,step=20", "rank=2,step=25"]
    ended = run_hvdft(["run", "-np", "4", *inject(*drills), *WORK])
    assert ended.code == 0, ended.err
    sizes = [4] * 9 + [3] * 12 + [2] * 19
    lines = [line for line in ended.out.splitlines() if line.startswith("END")]
    assert sorted(lines) == [
        f"END {rank} of 2: {place}; {trained(sizes):.0f} {sizes} 2 2"
        for rank, place in enumerate(two())
    ]


@pytest.mark.parametrize(
    ("leaving", "places"),
    [("2-3", two()), ("3", ["0 of 2, 0 of 2", "1 of 2, 0 of 1", "0 of 1, 1 of 2"])],
)
def test_ranks_of_another_node_leave(cluster: Cluster, leaving: str, places: Sequence[str]) -> None:
    hvdft = [sys.executable, "-m", "hvd_ft.cli", "run", "-np", "4", "-H", "n0:2,n1:2"]
    drills = inject(f"leave={leaving},step=20", "rank=1,step=30")
    ended = cluster.hvdft("run", "--", *hvdft, *drills, *WORK)
    check(ended, 4, places, 21)


def test_a_checkpoint_has_the_ranks_that_are_left(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    """Ranks 0 and 3 are the ranks 0 and 1 of the job that goes on."""
    keep = ["--checkpoint-dir", str(tmp_path)]
    drills = inject("leave=1-2,step=20", "rank=3,step=30", "rank=3,incarnation=1,step=33")
    once = {"HOROVOD_FT_MAX_FAILURES": "1"}
    ended = run_hvdft(["run", "-np", "4", *keep, *drills, *WORK], env=once)
    assert ended.code != 0, ended.err
    (found,) = find(tmp_path)
    assert found.state == "complete" and found.manifest is not None
    assert found.manifest.size == 2
    ended = run_hvdft(["run", "-np", "2", "--resume", str(tmp_path), *WORK])
    check(ended, 4, two(), 21)
