"""Variables that are no longer equal on all ranks: who is told what, and that nothing else is."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import SCRIPTS, Ended, RunHvdft

from hvd_ft.native.types import Divergence
from hvd_ft.reports.report import read_report

pytestmark = pytest.mark.timeout(900)

SCRIPT = str(SCRIPTS / "divergence_script.py")
RANKS = 3
FLIP = "rank=2,step=17,flip=second/kernel"
FOUND = Divergence("second/kernel:0", 18, (2,), 1, 15)
HOOKS = [f"HOOK {rank} second/kernel:0 18 2 (2,) 1 15" for rank in range(RANKS)]
DONE = [f"DONE {rank}" for rank in range(RANKS)]
LINE = (
    "second/kernel:0: rank 2 differs from the others at step 18, all being equal at step 15: memory"
)
STYLES = ["state", "keras", "estimator"]
TOPOLOGIES = ["hierarchical", "flat"]  # one node, or one for each rank


def train(
    run_hvdft: RunHvdft,
    folder: Path,
    style: str,
    drills: Sequence[str] = (),
    *,
    policy: str = "",
    topology: str = "hierarchical",
    ranks: int = RANKS,
) -> tuple[Ended, list[Divergence]]:
    """Trains in a job; returns how it ended, and the divergences in its report."""
    report = folder / f"{style}.jsonl"
    ended = run_hvdft(
        [
            *("run", "-np", str(ranks), "--no-live", "--topology", topology),
            *("--report", str(report)),
            *(word for drill in drills for word in ("--inject", drill)),
            *(sys.executable, SCRIPT, style),
        ],
        env={"HOROVOD_FT_ON_DIVERGENCE": policy, "HOROVOD_FT_MAX_FAILURES": "10"},
    )
    return ended, list(read_report(report).divergences)


def told(ended: Ended) -> list[str]:
    """Returns the lines about divergences that rank 0's worker has printed."""
    return re.findall(r"^hvdft: (.* all being equal .*)$", ended.err, re.MULTILINE)


@pytest.mark.shows(later=True)
@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("style", STYLES)
def test_a_flipped_bit_is_told_everywhere(
    run_hvdft: RunHvdft, tmp_path: Path, style: str, topology: str
) -> None:
    ended, found = train(run_hvdft, tmp_path, style, [FLIP], topology=topology)
    assert ended.code == 0, ended.err
    assert f"hvdft: drill: {FLIP}\n" in ended.err
    [line] = told(ended)
    assert line.startswith(LINE)
    assert "hvdft: second/kernel:0 diverged on rank 2 at step 18\n" in ended.err
    assert found == [FOUND]
    assert sorted(ended.out.splitlines()) == DONE + HOOKS
    table = run_hvdft(["report", str(tmp_path / f"{style}.jsonl")]).out
    assert re.search(r"second/kernel:0 +│ +1 │ +18 │ +15 │ rank 2", table), table


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_it_can_stop_the_job(run_hvdft: RunHvdft, tmp_path: Path, topology: str) -> None:
    ended, found = train(run_hvdft, tmp_path, "state", [FLIP], policy="stop", topology=topology)
    assert ended.code == 1, ended.err
    [line] = told(ended)
    assert line.startswith(LINE)
    assert found == [FOUND]


def test_it_can_be_left_alone(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    ended, found = train(run_hvdft, tmp_path, "state", [FLIP], policy="off")
    assert ended.code == 0, ended.err
    assert f"hvdft: drill: {FLIP}\n" in ended.err
    assert (told(ended), found) == ([], [])
    assert sorted(ended.out.splitlines()) == DONE


def test_of_two_ranks_none_is_called_wrong(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    drill = "rank=0,step=17,flip=first/bias"
    ended, found = train(run_hvdft, tmp_path, "keras", [drill], ranks=2)
    assert ended.code == 0, ended.err
    assert found == [Divergence("first/bias:0", 18, (0, 1), 1, 15)]
    assert "HOOK 1 first/bias:0 18 None (0, 1) 1 15" in ended.out.splitlines()
    [line] = told(ended)
    assert line.startswith("first/bias:0: ranks 0 and 1 differ from each other at step 18, ")


@pytest.mark.parametrize("style", STYLES)
def test_the_last_cut_counts(run_hvdft: RunHvdft, tmp_path: Path, style: str) -> None:
    last = {"state": 40, "keras": 20, "estimator": 40}[style]
    drill = f"rank=1,step={last},flip=second/kernel"
    ended, found = train(run_hvdft, tmp_path, style, [drill])
    assert ended.code == 0, ended.err
    assert [(each.variable, each.step, each.rank) for each in found] == [
        ("second/kernel:0", last, 1)
    ]


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("style", STYLES)
def test_no_false_alarm_with_ranks_that_are_killed(
    run_hvdft: RunHvdft, tmp_path: Path, style: str, topology: str
) -> None:
    drills = ["rank=1,step=7", "rank=0,step=14", "rank=1,incarnation=1,point=fingerprints,step=18"]
    ended, found = train(run_hvdft, tmp_path, style, drills, topology=topology)
    assert ended.code == 0, ended.err
    assert sorted(re.findall("^hvdft: drill: (.*)$", ended.err, re.MULTILINE)) == sorted(drills)
    assert (told(ended), found) == ([], [])
    assert sorted(ended.out.splitlines()) == DONE


def test_a_restarted_rank_0_compares_on(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    drills = ["rank=0,step=8", "rank=2,step=26,flip=second/kernel"]
    ended, found = train(run_hvdft, tmp_path, "state", drills)
    assert ended.code == 0, ended.err
    assert found == [Divergence("second/kernel:0", 27, (2,), 1, 24)]
    assert len(told(ended)) == 1


@pytest.mark.parametrize("style", STYLES)
def test_a_variable_that_is_not_there(run_hvdft: RunHvdft, tmp_path: Path, style: str) -> None:
    ended, _ = train(run_hvdft, tmp_path, style, ["rank=1,step=5,flip=third"])
    assert ended.code == 1, ended.err
    assert "hvdft: rank 1: " in ended.err or "hvdft: --inject" in ended.err
    assert re.search(
        r"^hvdft: .*--inject rank=1,step=5,flip=third: no variable is called third or has it in "
        r"its name; there are .*first/kernel:0, .*, …$",
        ended.err,
        re.MULTILINE,
    ), ended.err
