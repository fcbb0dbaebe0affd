"""Estimators continue from a checkpoint as an undisturbed job would, bit for bit."""

import sys
from pathlib import Path

import pytest
from conftest import SCRIPTS, Once, RunHvdft
from test_estimator_recovery import RANKS, Results

from hvd_ft.checkpoint.catalogue import find

pytest.importorskip("tensorflow_estimator")

SCRIPT = str(SCRIPTS / "estimator_script.py")
STYLES = "train,evaluate,session"
pytestmark = pytest.mark.timeout(600)


def results(out: str) -> Results:
    words = [line.split() for line in out.splitlines() if line.startswith("RESULT")]
    return {(style, int(rank)): found for _, style, rank, *found in words}


def command(folder: Path, *flags: str) -> list[str]:
    """Each rank has a model directory, in which only rank 0 writes."""
    return ["run", "-np", str(RANKS), *flags, sys.executable, SCRIPT, STYLES, str(folder)]


@pytest.mark.parametrize("op", [75, 125, 160], ids=["second training", "evaluate", "session"])
def test_it_goes_on_exactly(run_hvdft: RunHvdft, once: Once, tmp_path: Path, op: int) -> None:
    """Even if rank 0's model directory has more by then than when the training began."""

    def undisturbed(folder: Path) -> None:
        ended = run_hvdft(command(folder / "models"))
        assert ended.code == 0, ended.err
        (folder / "out").write_text(ended.out)

    expected = results((once("checkpoints-estimator", undisturbed) / "out").read_text())
    models, folder = tmp_path / "models", tmp_path / "c"
    broken = run_hvdft(
        command(models, "--inject", f"rank=0,op={op}", "--checkpoint-dir", str(folder)),
        env={"HOROVOD_FT_MAX_FAILURES": "0"},
    )
    assert broken.code != 0, broken
    [drained] = find(folder)
    assert drained.state == "complete"
    ended = run_hvdft(command(models, "--resume", str(folder)))
    assert ended.code == 0, ended.err
    assert f"continuing from {drained.path}" in ended.err
    assert results(ended.out) == expected
    assert len(expected) == 3 * RANKS
