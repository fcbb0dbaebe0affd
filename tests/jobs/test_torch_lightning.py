"""Lightning's Trainer in jobs whose ranks are killed: they end as an undisturbed job does.

The weights, the optimizer's state, what was logged and the checkpoints' names are the same.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import SCRIPTS, RunHvdft

SCRIPT = str(SCRIPTS / "torch_lightning_script.py")
pytestmark = pytest.mark.timeout(900)
# Rank 0 in the first epoch, rank 1 where the second begins and where it replays, rank 0 at the end.
DRILLS = (
    "rank=0,step=3",
    "rank=1,step=6",
    "rank=1,incarnation=1,point=replay",
    "rank=0,incarnation=1,step=17",
)
Results = dict[int, tuple[int, str, str]]


def train(
    run_hvdft: RunHvdft, folder: Path, style: str, mode: str, drills: Sequence[str] = ()
) -> Results:
    """Returns each rank's incarnation, a digest of the model and one of the rank's own values."""
    inject = [word for drill in drills for word in ("--inject", drill)]
    words = [sys.executable, SCRIPT, style, mode, str(folder)]
    ended = run_hvdft(["run", "-np", "2", *inject, *words])
    assert ended.code == 0, ended.err
    assert ended.err.count("hvdft: drill: ") == len(drills), ended.err
    assert ended.err.count("takes no snapshots") == (mode == "none")
    lines = re.findall(r"^RESULT (\d) (\d) (\S+) (\S+)$", ended.out, re.MULTILINE)
    found = {int(rank): (int(incarnation), *rest) for rank, incarnation, *rest in lines}
    assert sorted(found) == [0, 1], ended.out
    assert found[0][1] == found[1][1]
    return found


def check(
    run_hvdft: RunHvdft, folder: Path, style: str, mode: str, drills: Sequence[str] = DRILLS
) -> None:
    whole = train(run_hvdft, folder / "whole", style, mode)
    killed = train(run_hvdft, folder / "killed", style, mode, drills)
    deaths = [sum(drill.startswith(f"rank={rank},") for drill in drills) for rank in (0, 1)]
    assert [killed[rank][0] for rank in (0, 1)] == deaths
    assert [killed[rank][1:] for rank in (0, 1)] == [whole[rank][1:] for rank in (0, 1)]


@pytest.mark.shows(later=True)
def test_killed_ranks_of_a_trainer_end_as_undisturbed_ones(
    run_hvdft: RunHvdft, tmp_path: Path
) -> None:
    check(run_hvdft, tmp_path, "plain", "snapshots")


@pytest.mark.long
def test_killed_ranks_without_snapshots_do_so_too(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    check(run_hvdft, tmp_path, "plain", "none", ("rank=0,op=60", "rank=1,op=90"))


@pytest.mark.long
@pytest.mark.parametrize(
    "style", ["manual", "accumulate", "plateau", "iterable", "workers", "rare", "early", "twice"]
)
def test_killed_ranks_do_so_with_each_feature_of_a_trainer(
    run_hvdft: RunHvdft, tmp_path: Path, style: str
) -> None:
    drills = ("rank=0,step=3", "rank=1,step=8", "rank=1,incarnation=1,point=replay")
    check(run_hvdft, tmp_path, style, "snapshots", drills)
