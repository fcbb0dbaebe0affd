"""Accelerate in jobs whose ranks are killed: they end as an undisturbed job does, bit for bit."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import SCRIPTS, RunHvdft
from torch_clients import break_off, check_alike, train

SCRIPT = str(SCRIPTS / "torch_accelerate_script.py")
pytestmark = pytest.mark.timeout(900)
# Six steps an epoch: in the first one, after the first of the second, in a replay, and at the end.
DRILLS = (
    "rank=0,step=3",
    "rank=1,step=7",
    "rank=1,incarnation=1,point=replay",
    "rank=0,incarnation=1,step=17",
)


def check(
    run_hvdft: RunHvdft,
    style: str,
    mode: str = "snapshots",
    drills: Sequence[str] = DRILLS,
    *,
    ranks: int = 2,
) -> None:
    words = [SCRIPT, style, mode]
    whole, killed = (train(run_hvdft, words, each, ranks=ranks) for each in ((), drills))
    check_alike(whole, killed, drills)


@pytest.mark.shows(later=True)
def test_killed_ranks_end_as_undisturbed_ones(run_hvdft: RunHvdft) -> None:
    check(run_hvdft, "accumulate")


@pytest.mark.long
def test_killed_ranks_without_snapshots_do_so_too(run_hvdft: RunHvdft) -> None:
    check(run_hvdft, "plain", "none", ("rank=0,op=40", "rank=1,op=60"))


@pytest.mark.long
@pytest.mark.parametrize("style", ["plain", "seedable", "workers", "stream", "bf16"])
def test_killed_ranks_do_so_in_each_style(run_hvdft: RunHvdft, style: str) -> None:
    check(run_hvdft, style)


@pytest.mark.long
def test_killed_ranks_of_three_do_so_too(run_hvdft: RunHvdft) -> None:
    drills = ("rank=2,step=3", "rank=0,step=6", "rank=1,step=6", "rank=2,incarnation=1,step=10")
    check(run_hvdft, "accumulate", drills=drills, ranks=3)


@pytest.mark.long
@pytest.mark.parametrize(("style", "step"), [("seedable", 8), ("accumulate", 13)])
def test_a_job_goes_on_from_a_checkpoint(
    run_hvdft: RunHvdft, tmp_path: Path, style: str, step: int
) -> None:
    """Also if a rank is killed in the job that goes on."""
    words = [SCRIPT, style, "snapshots"]
    whole = train(run_hvdft, words)
    break_off(run_hvdft, words, tmp_path / "c", step)
    drills = ["rank=0,step=14", "rank=1,step=16"]
    resumed = train(run_hvdft, words, drills, "--resume", str(tmp_path / "c"))
    check_alike(whole, resumed, drills)


@pytest.mark.long
def test_another_number_of_ranks_goes_on_from_a_checkpoint(
    run_hvdft: RunHvdft, tmp_path: Path
) -> None:
    """All ranks have the same weights then, whoever is killed."""
    words = [SCRIPT, "plain", "snapshots"]
    break_off(run_hvdft, words, tmp_path / "c", 8)
    drills = ["rank=2,step=10", "rank=0,step=15"]
    resume = ["--resume", str(tmp_path / "c")]
    whole, killed = (train(run_hvdft, words, each, *resume, ranks=3) for each in ((), drills))
    check_alike(whole, killed, drills)


@pytest.mark.long
@pytest.mark.parametrize(
    ("style", "reason"),
    [
        ("dispatched", "rank 0 draws the batches of this loader for all ranks"),
        ("gloo", "InitProcessGroupKwargs(backend='gloo') does not survive the death of a rank"),
    ],
)
def test_what_does_not_work_is_refused(run_hvdft: RunHvdft, style: str, reason: str) -> None:
    ended = run_hvdft(["run", "-np", "2", sys.executable, SCRIPT, style, "snapshots"])
    assert ended.code != 0
    assert reason in ended.err
