"""Accelerate in jobs whose ranks are killed: they end as an undisturbed job does, bit for bit."""

import re
import sys
from collections.abc import Sequence

import pytest
from conftest import SCRIPTS, RunHvdft

SCRIPT = str(SCRIPTS / "torch_accelerate_script.py")
pytestmark = pytest.mark.timeout(900)
# Six steps an epoch: in the first one, after the first of the second, in a replay, and at the end.
DRILLS = (
    "rank=0,step=3",
    "rank=1,step=7",
    "rank=1,incarnation=1,point=replay",
    "rank=0,incarnation=1,step=17",
)
Results = dict[int, tuple[int, str, str]]


def train(run_hvdft: RunHvdft, style: str, mode: str, drills: Sequence[str] = ()) -> Results:
    """Returns each rank's incarnation, a digest of what is shared and one of the rank's own."""
    inject = [word for drill in drills for word in ("--inject", drill)]
    ended = run_hvdft(["run", "-np", "2", *inject, sys.executable, SCRIPT, style, mode])
    assert ended.code == 0, ended.err
    assert ended.err.count("hvdft: drill: ") == len(drills), ended.err
    assert ended.err.count("takes no snapshots") == (mode == "none")
    lines = re.findall(r"^RESULT (\d) (\d) (\S+) (\S+)$", ended.out, re.MULTILINE)
    found = {int(rank): (int(incarnation), *rest) for rank, incarnation, *rest in lines}
    assert sorted(found) == [0, 1], ended.out
    assert found[0][1] == found[1][1]
    return found


def check(
    run_hvdft: RunHvdft, style: str, mode: str = "snapshots", drills: Sequence[str] = DRILLS
) -> None:
    whole = train(run_hvdft, style, mode)
    killed = train(run_hvdft, style, mode, drills)
    deaths = [sum(drill.startswith(f"rank={rank},") for drill in drills) for rank in (0, 1)]
    assert [killed[rank][0] for rank in (0, 1)] == deaths
    assert [killed[rank][1:] for rank in (0, 1)] == [whole[rank][1:] for rank in (0, 1)]


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
