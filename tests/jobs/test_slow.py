"""A job with a slowed rank is named, an even one is not."""

import json
import sys
from pathlib import Path

import pytest
from conftest import ROOT, RunHvdft

SCRIPT = str(ROOT / "tests" / "jobs" / "scripts" / "slow_script.py")
EVEN_STEPS = 600  # of 40 ms or more: longer than the rule looks back


@pytest.mark.shows(later=True)
def test_a_rank_that_becomes_slow_is_named_and_none_before(
    run_hvdft: RunHvdft, tmp_path: Path
) -> None:
    report = tmp_path / "run.jsonl"
    ended = run_hvdft(
        [
            *("run", "-np", "3", "--report", str(report)),
            *("--inject", f"rank=1,step={EVEN_STEPS},slow=1.6"),
            *(sys.executable, SCRIPT, "--until", str(report), "--steps", "6000"),
        ]
    )
    assert ended.code == 0, ended.err
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    (found,) = [line for line in lines if line.get("type") == "SLOW"]
    assert found["ranks"] == [1] and not found["ended"] and found["wait"] > 0.1
    assert found["text"] in ended.err
    drill = ended.err.index(f"drill: rank=1,step={EVEN_STEPS},slow=1.6")
    assert drill < ended.err.index("rank 1 on") and ended.err.count("is slow") == 1
    assert any("waits for its input" in cause for cause in found["causes"])  # the drill sleeps
    shown = run_hvdft(["report", str(report)])
    assert found["text"] in " ".join(shown.out.split())


@pytest.mark.parametrize("topology", ["hierarchical", "flat"])
def test_copies_and_network_are_apart_and_a_job_on_one_node_has_no_network(
    run_hvdft: RunHvdft, tmp_path: Path, topology: str
) -> None:
    report, nothing = tmp_path / "run.jsonl", tmp_path / "nothing"
    nothing.touch()
    script = [sys.executable, SCRIPT, "--until", str(nothing), "--steps", "30", "--ms", "1"]
    flags = ["--no-live", "--topology", topology, "--report", str(report)]
    ended = run_hvdft(["run", "-np", "2", *flags, *script])
    assert ended.code == 0, ended.err
    end = json.loads(report.read_text().splitlines()[-1])
    for rank in end["ranks"]:  # the mirror tells rank 0's node of the other node's
        times = rank["times"]
        assert times["rounds"] > 0 and times["copy_ns"] > 0
        assert (times["network_ns"] > 0) == (topology == "flat")
