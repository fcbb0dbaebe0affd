"""Requests that were agreed before are announced by their numbers, whoever dies meanwhile."""

import re
import sys

import numpy as np
import pytest
from conftest import SCRIPTS, Cluster, Ended, RunHvdft

SCRIPT = str(SCRIPTS / "numbered_script.py")
STEPS, TENSORS = 14, 20
# The coordinator, once before the requests are numbered and once after that; a rank while it
# announces by number, and one before it has announced what ranks do not agree about.
DRILLS = (
    "rank=0,step=1",
    "rank=0,incarnation=1,step=7",
    "rank=2,point=announce,step=5",
    "rank=1,step=9",
)


def expected() -> list[str]:
    """What the ranks print."""
    weights = np.arange(TENSORS)
    for step in range(STEPS):
        weights = sum((3 * weights + rank + step) % 17 for rank in range(3))
    return [f"rank {rank}: 1 refused, {weights.sum()}" for rank in range(3)]


def announced(ended: Ended) -> list[int]:
    """How many bytes were announced to rank 0 in each step."""
    found = dict(re.findall(r"step (\d+): (\d+) bytes", ended.err))
    return [int(found[str(step + 1)]) for step in range(STEPS)]


def test_a_numbered_step_is_announced_in_few_bytes(run_hvdft: RunHvdft) -> None:
    ended = run_hvdft(["run", "-np", "3", sys.executable, SCRIPT])
    assert ended.code == 0, ended.err
    assert sorted(ended.out.splitlines()) == expected()
    steps = announced(ended)
    names, numbers = steps[0], steps[10]
    assert names > 2 * TENSORS * len("a/long/name/0"), steps
    assert 8 * numbers < names, steps


def test_ranks_that_die_know_the_numbers_again(run_hvdft: RunHvdft) -> None:
    flags = [flag for drill in DRILLS for flag in ("--inject", drill)]
    ended = run_hvdft(["run", "-np", "3", *flags, sys.executable, SCRIPT])
    assert ended.code == 0, ended.err
    assert ended.err.count("hvdft: drill: ") == len(DRILLS), ended.err
    assert sorted(ended.out.splitlines()) == expected()
    assert 8 * announced(ended)[-1] < max(announced(ended)), ended.err


@pytest.mark.long
def test_nodes_know_the_numbers(cluster: Cluster) -> None:
    hvdft = [sys.executable, "-m", "hvd_ft.cli", "run", "-np", "3", "-H", "n0:1,n1:2"]
    flags = [flag for drill in DRILLS[1:] for flag in ("--inject", drill.replace("ion=1", "ion=0"))]
    ended = cluster.hvdft("run", "--", *hvdft, *flags, sys.executable, SCRIPT)
    assert ended.code == 0, ended.err
    assert sorted(ended.out.splitlines()) == expected()
    assert 8 * announced(ended)[-1] < max(announced(ended)), ended.err
