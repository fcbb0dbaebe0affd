"""What experiments run inside a job, made small."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, RunHvdft


@pytest.mark.shows
def test_localitys_core_sums_without_tensorflow(
    run_hvdft: RunHvdft, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    module = [sys.executable, "-m", "experiments.locality.core"]
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
     "buddy_cost.run", "suspects.run", "locality.seed_loop", "endpoints.run", "endpoints_probe.run",
     "keeping_tensors.run", "crashes.run", "more_nodes.run", "failures.run", "scale.run",
     "times_cost.run", "torch_nodes.run"],
)  # fmt: skip
@pytest.mark.job
def test_bad_options_are_told_in_a_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    numbers = {"locality.run": "--turns", "state_memory.run": "--steps", "crashes.run": "--laps"}
    numbers |= {"scale.run": "--most", "endpoints_probe.run": "--rounds"}
    number = {**numbers, "torch_nodes.run": "--turns"}.get(name, "--repeats")
    for flags in (["--output", str(tmp_path / "file" / "in")], [number, "0"], [number, "x"]):
        command = [sys.executable, "-m", f"experiments.{name}", *flags]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert ended.returncode == 2
        assert "Traceback" not in ended.stderr, ended.stderr
        assert f"error: argument {flags[0]}: " in ended.stderr


@pytest.mark.job
@pytest.mark.long
@pytest.mark.timeout(1800)  # four trainings, five starts
def test_both_sides_of_figure_6_survive_the_same_failure(tmp_path: Path) -> None:
    module = [sys.executable, "-m", "experiments.time_to_converge.run", "--output", str(tmp_path)]
    flags = ["--repeats", "1", "--ranks", "3", "--epochs", "1", "--failures", "0.5"]
    subprocess.run([*module, *flags, "--sides", "stock", "ft"], cwd=ROOT, check=True)
    with (tmp_path / "results.csv").open(newline="") as file:
        rows = {(row["side"], row["failure"]): row for row in csv.DictReader(file)}
    attempts = {key: int(row["attempts"]) for key, row in rows.items()}
    whole = {("stock", "0.0"): 1, ("ft", "0.0"): 1, ("ft", "0.5"): 1}
    assert attempts == {**whole, ("stock", "0.5"): 2}
    for side in ("stock", "ft"):
        assert rows[side, "0.0"]["accuracy"] == rows[side, "0.5"]["accuracy"]
    assert (tmp_path / "plot.png").is_file()
