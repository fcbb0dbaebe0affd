"""What experiments run inside a job, made small."""

import json
import sys
from pathlib import Path

import pytest
from conftest import RunHvdft

from experiments.locality.core import compile_sum

ROOT = Path(__file__).resolve().parents[1]


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
