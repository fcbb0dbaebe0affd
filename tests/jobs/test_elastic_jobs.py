"""Jobs whose script was written for Horovod Elastic: killed, and with another number of ranks."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import SCRIPTS, Ended, Once, RunHvdft

from hvd_ft.native.types import EventType
from hvd_ft.reports.report import read_report

WORK = [sys.executable, "-W", "ignore", str(SCRIPTS / "elastic_script.py")]
STYLES = ("loop", "keras")
pytestmark = pytest.mark.timeout(300)


def ends(ended: Ended, ranks: int) -> list[str]:
    assert ended.code == 0, ended.err
    found = sorted(line for line in ended.out.splitlines() if line.startswith("END"))
    assert [line.split()[1:4] for line in found] == [
        [str(n), "of", str(ranks)] for n in range(ranks)
    ]
    assert len({line.split(maxsplit=4)[4] for line in found}) == 1, found
    return found


def inject(drills: Sequence[str]) -> list[str]:
    return [word for drill in drills for word in ("--inject", drill)]


@pytest.mark.parametrize("style", STYLES)
def test_killed_ranks_change_nothing(
    run_hvdft: RunHvdft, once: Once, tmp_path: Path, style: str
) -> None:
    def make(folder: Path) -> None:
        ended = run_hvdft(["run", "-np", "2", *WORK, style])
        ends(ended, 2)
        (folder / "out").write_text(ended.out)

    out = (once(f"elastic-{style}", make) / "out").read_text()
    # Steps of a loop are its commits, of which there are 6 in an epoch of 12 batches.
    at = (5, 9, 11) if style == "loop" else (9, 17, 21)
    drills = [f"rank=1,step={at[0]}", f"rank=0,step={at[1]}", f"rank=1,incarnation=1,step={at[2]}"]
    report = tmp_path / "report.jsonl"
    flags = ["--report", str(report), *inject(drills)]
    ended = run_hvdft(["run", "-np", "2", *flags, *WORK, style])
    assert ended.err.count("hvdft: drill") == len(drills), ended.err
    assert ends(ended, 2) == ends(Ended(0, out, ""), 2)
    assert "RESET" not in ended.out
    restored = [e for e in read_report(report).events if e.type is EventType.RESTORED]
    assert len(restored) == len(drills), "each went on from a snapshot"


@pytest.mark.parametrize("style", STYLES)
def test_it_goes_on_with_another_number_of_ranks(
    run_hvdft: RunHvdft, tmp_path: Path, style: str
) -> None:
    folder = tmp_path / "c"
    # Of 24 batches, or 8 a rank and epoch with 3 ranks; commits are of every second one.
    at = 7 if style == "loop" else 11
    loses = [f"rank=1,step={at}", f"rank=1,step={at},incarnation=1"]
    keep = ["--checkpoint-dir", str(folder)]
    env = {"HOROVOD_FT_MAX_FAILURES": "1"}
    ended = run_hvdft(["run", "-np", "3", *keep, *inject(loses), *WORK, style], env=env)
    assert ended.code != 0 and "the job's latest state is in" in ended.err, ended.err
    ended = run_hvdft(["run", "-np", "2", *keep, "--resume", str(folder), *WORK, style])
    (end, _) = ends(ended, 2)
    resets = sorted(re.findall(r"RESET (\d) (\d) (\d+)", ended.out))
    assert [rank for rank, _, _ in resets] == ["0", "1"], ended.out
    assert resets[0][1:] == resets[1][1:]
    epoch, batch = int(resets[0][1]), int(resets[0][2])
    assert epoch + batch > 0
    if style == "loop":  # each batch was trained with once, by 3 ranks or by 2
        assert int(end.split()[-1]) == 8 * epoch + batch + 12 * (3 - epoch) - batch
    left_out = "a reset callback calls fit for the model that is being fitted"
    assert (left_out in ended.err) == (style == "keras")


@pytest.mark.parametrize("module", ["hvd_ft.tensorflow", "horovod.tensorflow"])
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.job
def test_without_an_agent_it_runs_on_horovods(style: str, module: str) -> None:
    """With ours as with Horovod itself: the script is one of Elastic's."""
    env = {**os.environ, "HVD": module, "TF_CPP_MIN_LOG_LEVEL": "3"}
    ended = subprocess.run([*WORK, style], env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert re.fullmatch(r"END 0 of 1 \w+ \d (72|-)\n", ended.stdout), ended.stdout
