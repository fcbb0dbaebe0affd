"""Real jobs with PyTorch whose ranks are killed end as an undisturbed job does, bit for bit."""

import sys
from collections.abc import Sequence

import pytest
from conftest import SCRIPTS, RunHvdft

SCRIPT = str(SCRIPTS / "torch_state_script.py")
pytestmark = pytest.mark.timeout(600)
STEPS = 18  # of each rank: 3 epochs of 48 samples for 2 ranks in batches of 4
# Rank 0 in the first epoch and rank 1 in the second, where it replays; at the end rank 0 again.
DRILLS = (
    "rank=0,step=3",
    "rank=1,step=7",
    "rank=1,incarnation=1,point=replay",
    f"rank=0,incarnation=1,step={STEPS - 1}",
)

Results = dict[int, tuple[int, str, str]]


def train(run_hvdft: RunHvdft, style: str, drills: Sequence[str] = ()) -> Results:
    """Returns each rank's incarnation and digests."""
    inject = [word for drill in drills for word in ("--inject", drill)]
    ended = run_hvdft(["run", "-np", "2", *inject, sys.executable, SCRIPT, style])
    assert ended.code == 0, ended.err
    assert ended.err.count("hvdft: drill: ") == len(drills), ended.err
    assert "takes no snapshots" not in ended.err
    found: Results = {}
    for line in ended.out.splitlines():
        if line.startswith("RESULT"):
            _, rank, incarnation, weights, own = line.split()
            found[int(rank)] = (int(incarnation), weights, own)
    assert sorted(found) == [0, 1], ended.out
    assert found[0][1] == found[1][1]
    return found


def check(run_hvdft: RunHvdft, style: str) -> None:
    whole = train(run_hvdft, style)
    killed = train(run_hvdft, style, DRILLS)
    assert [killed[rank][0] for rank in (0, 1)] == [2, 2]
    assert [killed[rank][1:] for rank in (0, 1)] == [whole[rank][1:] for rank in (0, 1)]


@pytest.mark.shows
def test_killed_ranks_end_as_undisturbed_ones(run_hvdft: RunHvdft) -> None:
    """Gradients are summed over three passes, and snapshots are taken between them."""
    check(run_hvdft, "accumulate")


@pytest.mark.shows(later=True)
@pytest.mark.parametrize("style", ["plain", "unnamed", "large", "workers"])
def test_killed_ranks_end_as_undisturbed_ones_in_each_style(
    run_hvdft: RunHvdft, style: str
) -> None:
    check(run_hvdft, style)
