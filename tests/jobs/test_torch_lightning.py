"""Lightning's Trainer in jobs whose ranks are killed: they end as an undisturbed job does.

The weights, the optimizer's state, what was logged and the checkpoints' names are the same.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import SCRIPTS, RunHvdft
from torch_clients import break_off, check_alike, run, train

SCRIPT = str(SCRIPTS / "torch_lightning_script.py")
pytestmark = pytest.mark.timeout(900)
# Rank 0 in the first epoch, rank 1 where the second begins and where it replays, rank 0 at the end.
DRILLS = (
    "rank=0,step=3",
    "rank=1,step=6",
    "rank=1,incarnation=1,point=replay",
    "rank=0,incarnation=1,step=17",
)


def check(
    run_hvdft: RunHvdft,
    folder: Path,
    style: str,
    mode: str,
    drills: Sequence[str] = DRILLS,
    *,
    ranks: int = 2,
) -> None:
    words = [SCRIPT, style, mode]
    whole = train(run_hvdft, [*words, str(folder / "whole")], ranks=ranks)
    killed = train(run_hvdft, [*words, str(folder / "killed")], drills, ranks=ranks)
    check_alike(whole, killed, drills)


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


@pytest.mark.long
def test_killed_ranks_of_three_do_so_too(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    drills = ("rank=2,step=3", "rank=0,step=6", "rank=1,step=6", "rank=2,incarnation=1,step=10")
    check(run_hvdft, tmp_path, "plain", "snapshots", drills, ranks=3)


@pytest.mark.long
@pytest.mark.parametrize(("style", "step"), [("plain", 8), ("accumulate", 13)])
def test_a_job_goes_on_from_a_checkpoint(
    run_hvdft: RunHvdft, tmp_path: Path, style: str, step: int
) -> None:
    """Also if a rank is killed in the job that goes on."""
    words = [SCRIPT, style, "snapshots"]
    whole = train(run_hvdft, [*words, str(tmp_path / "whole")])
    words.append(str(tmp_path / "broken"))
    break_off(run_hvdft, words, tmp_path / "c", step)
    drills = ["rank=0,step=14", "rank=1,step=16"]
    resumed = train(run_hvdft, words, drills, "--resume", str(tmp_path / "c"))
    check_alike(whole, resumed, drills)


@pytest.mark.long
def test_another_number_of_ranks_than_the_checkpoints_is_refused(
    run_hvdft: RunHvdft, tmp_path: Path
) -> None:
    words = [SCRIPT, "plain", "snapshots", str(tmp_path / "broken")]
    break_off(run_hvdft, words, tmp_path / "c", 8)
    ended = run(run_hvdft, words, (), 3, "--resume", str(tmp_path / "c"))
    assert ended.code != 0
    assert "Lightning's Trainer keeps the number of ranks with which it began" in ended.err
