"""What experiments run inside a job, made small."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, RunHvdft

from experiments.locality.core import compile_sum


@pytest.mark.shows
def test_localitys_core_sums_without_tensorflow(
    run_hvdft: RunHvdft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    library = tmp_path / "core_sum.so"
    compile_sum(library)
    module = [sys.executable, "-m", "experiments.locality.core", "--library", str(library)]
    sizes = ["--side", "core", "--bytes", "4000,300000", "--repeats", "2", "--in-a-row", "3"]
    ended = run_hvdft(["run", "--no-live", "-np", "2", *module, *sizes])
    assert ended.code == 0, ended.err
    rows = [json.loads(line) for line in ended.out.splitlines() if line.startswith("{")]
    assert [(row["bytes"], row["repeat"]) for row in rows] == [
        (size, repeat) for size in (4000, 300000) for repeat in (0, 1)
    ]
    assert all(row["wrong"] == 0 and row["seconds"] > 0 for row in rows)


@pytest.mark.parametrize(
    "name",
    ["locality.run", "recovery_time.run", "recovery_time.agent", "snapshot_cost.run",
     "state_memory.run", "time_to_converge.run", "lost_host.run", "checkpoint_cost.run",
     "buddy_cost.run", "suspects.run", "locality.seed_loop"],
)  # fmt: skip
@pytest.mark.job
def test_bad_options_are_told_in_a_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    number = {"locality.run": "--turns", "state_memory.run": "--steps"}.get(name, "--repeats")
    for flags in (["--output", str(tmp_path / "file" / "in")], [number, "0"], [number, "x"]):
        command = [sys.executable, "-m", f"experiments.{name}", *flags]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert ended.returncode == 2
        assert "Traceback" not in ended.stderr, ended.stderr
        assert f"error: argument {flags[0]}: " in ended.stderr
