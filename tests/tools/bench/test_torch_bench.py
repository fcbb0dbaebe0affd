"""`hvdft bench --framework torch`: the same tables, with Gloo beside stock Horovod."""

import csv
from pathlib import Path

import pytest
from conftest import RunHvdft


@pytest.mark.shows(later=True)
def test_gloo_is_measured_beside_horovod(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    table = tmp_path / "a.csv"
    ended = run_hvdft(
        [
            *("bench", "allreduce", "--framework", "torch", "-np", "2", "--tensors", "2"),
            *("--min-bytes", "1K", "--max-bytes", "64K", "--factor", "64"),
            *("--iterations", "3", "--repeats", "2", "--csv", str(table)),
        ]
    )
    assert ended.code == 0, ended.err
    lines = [line for line in table.read_text().splitlines() if not line.startswith("#")]
    read = list(csv.DictReader(lines))
    assert [(line["bytes"], line["backend"]) for line in read] == [
        (str(size), side) for size in (1024, 65536) for side in ("ft", "mpi", "gloo")
    ]
    assert {line["wrong"] for line in read} == {"0"}
    assert all(float(line["min_time_us"]) > 0 for line in read)


def test_training_with_gloo_and_the_price_of_a_kill(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    ended = run_hvdft(
        [
            *("bench", "training", "--framework", "torch", "-np", "2", "--models", "digits:20"),
            *("--rounds", "1", "--backends", "ft,gloo", "--snapshot-steps", "4"),
            *("--csv", str(table)),
        ]
    )
    assert ended.code == 0, ended.err
    lines = [line for line in table.read_text().splitlines() if not line.startswith("#")]
    found = {(read["run"], read["backend"]) for read in csv.DictReader(lines)}
    throughput = {("throughput", "ft"), ("throughput", "gloo")}
    assert found == throughput | {("undisturbed", "ft"), ("one kill", "ft")}


@pytest.mark.shows
def test_what_pytorch_does_not_measure_is_said(run_hvdft: RunHvdft) -> None:
    for flag in (["--copies"], ["--op", "average"]):
        ended = run_hvdft(["bench", "allreduce", "--framework", "torch", *flag])
        assert ended.code == 2
        assert ended.err == (
            f"hvdft: {' '.join(flag)} is measured with --framework tensorflow only; leave it out\n"
        )
