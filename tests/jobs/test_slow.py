"""A job with a slowed rank is named, an even one is not."""

import json
import sys
from pathlib import Path

import pytest
from conftest import SCRIPTS, RunHvdft
from slow_jobs import named

SCRIPT = str(SCRIPTS / "slow_script.py")


@pytest.mark.shows(later=True)
def test_a_rank_that_becomes_slow_is_named_and_none_before(
    run_hvdft: RunHvdft, tmp_path: Path
) -> None:
    report = tmp_path / "run.jsonl"
    found, said = named(run_hvdft, report, SCRIPT, rank=1)
    assert found["text"] in said and said.count("is slow") == 1
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
