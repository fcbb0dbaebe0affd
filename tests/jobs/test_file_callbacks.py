"""What callbacks of a fit have written after kills is what they write undisturbed."""

import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import SCRIPTS, RunHvdft

tf = pytest.importorskip("tensorflow")

SCRIPT = str(SCRIPTS / "file_callbacks_script.py")


def events(folder: Path) -> list[Any]:
    """What TensorBoard would read there, without the times: each file's events in order."""
    found = []
    for path in sorted(folder.glob("events.out.tfevents.*")):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            event.ClearField("wall_time")
            what = event.WhichOneof("what")
            if what == "graph_def":
                found.append(what)  # its names have numbers of the process
            elif what not in ("file_version", "source_metadata", None):
                found.append(event.SerializeToString(deterministic=True))
    return found


def written(run_hvdft: RunHvdft, folder: Path, *drills: str) -> dict[str, Any]:
    inject = [word for drill in drills for word in ("--inject", drill)]
    ended = run_hvdft(["run", "-np", "2", *inject, sys.executable, SCRIPT, str(folder)])
    assert ended.code == 0, ended.err
    ends = sorted(line for line in ended.out.splitlines() if line.startswith("END"))
    assert ends == ["END 0 0", f"END 1 {len(drills)}"]
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir():
            found[name] = events(path)
        elif "tfevents" not in name:
            found[name] = path.read_bytes()
    return found


def test_files_go_on_where_they_were(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    expected = written(run_hvdft, tmp_path / "undisturbed")
    drills = ["rank=1,step=11", "rank=1,step=17,incarnation=1", "rank=1,step=15,incarnation=2"]
    found = written(run_hvdft, tmp_path / "killed", *drills)
    assert found["1/table.csv"].count(b"\n") == 5  # the second fit's, and a header
    assert found["1/all.csv"].count(b"\n") == 8
    assert len(found["1/board/train"]) > 10 and len(found["1/board/validation"]) > 6
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == value, name
