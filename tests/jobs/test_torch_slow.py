"""A rank that hands over late while others compute costs nothing, and is not named as slow."""

import json
import sys
from pathlib import Path

import pytest
from conftest import ROOT, RunHvdft

SCRIPT = str(ROOT / "tests" / "jobs" / "scripts" / "torch_beside_script.py")
BEHIND_STEPS = 600  # of 40 ms or more: longer than the rule looks back


@pytest.mark.shows(later=True)
def test_a_rank_that_is_behind_at_no_cost_is_not_named_and_a_slow_one_is(
    run_hvdft: RunHvdft, tmp_path: Path
) -> None:
    report = tmp_path / "run.jsonl"
    ended = run_hvdft(
        [
            *("run", "-np", "3", "--report", str(report)),
            *("--inject", f"rank=2,step={BEHIND_STEPS},slow=1.6"),
            *(sys.executable, SCRIPT, "--until", str(report), "--steps", "6000"),
        ]
    )
    assert ended.code == 0, ended.err
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    (found,) = [line for line in lines if line.get("type") == "SLOW"]
    assert found["ranks"] == [2] and not found["ended"] and found["wait"] > 0.1
    assert ended.err.index(f"drill: rank=2,step={BEHIND_STEPS}") < ended.err.index("rank 2 on")
