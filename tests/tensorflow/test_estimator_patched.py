"""An Estimator without a model directory, patched and not, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = str(Path(__file__).with_name("patched_script.py"))


@pytest.mark.shows(later=True)
@pytest.mark.parametrize("way", ["patched", "config"])
def test_what_it_can_do_and_what_it_says_it_cannot(
    way: str, patched_estimator: Path, tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in ("exported", "model", "tmp", "cwd")]
    for folder in folders[2:]:
        folder.mkdir()
    path = {"PYTHONPATH": str(patched_estimator)} if way == "patched" else {}
    # Without bytecode of what TensorFlow's AutoGraph makes there, and removes.
    env = {**os.environ, **path, "TMPDIR": str(folders[2]), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-W", "ignore", SCRIPT, way, *map(str, folders[:2])]
    ended = subprocess.run(
        command, env=env, cwd=folders[3], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    exporting, stopping = ended.stdout.splitlines()
    assert "give the Estimator a `model_dir`, or call `export_saved_model`" in exporting
    assert "Early stopping reads event files" in stopping
    written = {path.name for path in folders[1].rglob("*") if path.is_file()}
    assert {"checkpoint", "graph.pbtxt", "model.ckpt-1.index", "model.ckpt-1.meta"} <= written
    assert any((folders[1] / "eval").glob("events.out.*"))
    assert any(folders[1].glob("events.out.*"))
    assert [*folders[2].iterdir(), *folders[3].iterdir()] == []
