"""What the core does with a PyTorch state: diverged weights, hooks, what ranks store once."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import SCRIPTS, Ended, RunHvdft

from hvd_ft.native.types import Divergence
from hvd_ft.reports.report import Report, read_report

pytestmark = pytest.mark.timeout(900)
SCRIPT = str(SCRIPTS / "torch_watched_script.py")
RANKS = 3


def train(
    run_hvdft: RunHvdft, folder: Path, drills: Sequence[str] = ()
) -> tuple[Ended, Report, list[str]]:
    """Returns how a job has ended, its report, and what its ranks ended with."""
    file = folder / f"{len(drills)}.jsonl"
    inject = [word for drill in drills for word in ("--inject", drill)]
    ended = run_hvdft(
        [
            *("run", "-np", str(RANKS), "--no-live", "--report", str(file), *inject),
            *(sys.executable, SCRIPT),
        ],
        env={"HOROVOD_FT_MAX_FAILURES": "10"},
    )
    assert ended.code == 0, ended.err
    struck = re.findall(r"^hvdft: drill: (.*)$", ended.err, re.MULTILINE)
    assert sorted(struck) == sorted(drills), ended.err
    ends = sorted(line for line in ended.out.splitlines() if line.startswith("DONE"))
    assert len(ends) == RANKS, ended.out
    return ended, read_report(file), ends


@pytest.mark.shows(later=True)
def test_a_flipped_bit_is_told_everywhere(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    ended, report, _ = train(run_hvdft, tmp_path, ["rank=2,step=17,flip=second.weight"])
    assert list(report.divergences) == [Divergence("model.second.weight", 18, (2,), 1, 15)]
    told = sorted(line for line in ended.out.splitlines() if line.startswith("HOOK"))
    assert told == [f"HOOK {rank} model.second.weight 18 2 (2,) 15" for rank in range(RANKS)]


@pytest.mark.shows(later=True)
def test_killed_ranks_alarm_nobody_and_call_hooks(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    """Also between two parts of a snapshot of which the ranks of the node store each part once."""
    drills = [
        *("rank=1,step=7", "rank=0,step=14", "rank=1,incarnation=1,point=fingerprints"),
        *("rank=2,point=fingerprints", "rank=2,incarnation=1,point=snapshot_write"),
        *("rank=0,incarnation=1,point=snapshot_delivered", "rank=2,incarnation=2,step=30"),
    ]
    _, whole, expected = train(run_hvdft, tmp_path)
    ended, killed, ends = train(run_hvdft, tmp_path, drills)
    assert ends == expected
    assert not whole.divergences and not killed.divergences
    lines = ended.out.splitlines()
    for rank, deaths in ((0, 2), (1, 2), (2, 3)):
        restarts = [f"RESTARTED {rank} {incarnation}" for incarnation in range(1, deaths + 1)]
        assert [line for line in lines if line.startswith(f"RESTARTED {rank}")] == restarts
    for dead in range(RANKS):
        for word in ("FAILED", "RECOVERED"):
            heard = {line.split()[1] for line in lines if re.match(rf"{word} \d {dead}$", line)}
            assert heard and str(dead) not in heard, (word, dead)
