"""Real jobs with tf.estimator whose ranks are killed end as an undisturbed job, bit for bit."""

import random
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import SCRIPTS, RunHvdft

pytest.importorskip("tensorflow_estimator")

SCRIPT = str(SCRIPTS / "estimator_script.py")
STYLES = ["train", "evaluate", "session"]
RANKS = 2
STEP = random.Random(20220512).randrange(2, 24)  # at which one dies

# By style and rank: hashes of the weights and of the rank's own statistics, and metrics.
Results = dict[tuple[str, int], list[str]]


def train(
    run_hvdft: RunHvdft, styles: Sequence[str], drills: Sequence[str], *arguments: str
) -> Results:
    inject = [word for drill in drills for word in ("--inject", drill)]
    command = [sys.executable, SCRIPT, ",".join(styles), *arguments]
    ended = run_hvdft(
        ["run", "-np", str(RANKS), *inject, *command],
        env={"HOROVOD_FT_MAX_FAILURES": "10"},
    )
    assert ended.code == 0, ended.err
    struck = [line.partition("hvdft: drill: ")[2] for line in ended.err.splitlines()]
    assert sorted(filter(None, struck)) == sorted(drills), ended.err
    results: Results = {}
    for line in ended.out.splitlines():
        if line.startswith("RESULT"):
            _, style, rank, *found = line.split()
            # A restarted process tells again what its predecessors have told.
            assert results.setdefault((style, int(rank)), found) == found, ended.out
    assert sorted(results) == sorted((s, r) for s in styles for r in range(RANKS)), ended.out
    return results


@pytest.mark.shows(later=True)
def test_killed_ranks_change_nothing(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    """And in train_and_evaluate, rank 0 alone writes if each rank has a directory."""
    expected = train(run_hvdft, STYLES, [])
    for style in STYLES:
        weights, statistics = zip(
            *(expected[style, rank][:2] for rank in range(RANKS)), strict=True
        )
        assert len(set(weights)) == 1
        assert len(set(statistics)) == RANKS
    drills = [
        # In the first training, and in train_and_evaluate.
        *(f"rank=1,step={STEP}", "rank=1,incarnation=1,op=115"),
        # In the second training, in a recovery, in train_and_evaluate, and in the session that has
        # no Estimator: then it finds more checkpoints than there were when it began.
        *("rank=0,op=75", "rank=0,incarnation=1,point=restore", "rank=0,incarnation=2,op=125"),
        "rank=0,incarnation=3,op=160",
    ]
    assert train(run_hvdft, STYLES, drills, str(tmp_path)) == expected
    assert [path.name for path in tmp_path.iterdir()] == ["rank-0"]
    assert (tmp_path / "rank-0" / "model.ckpt-24.index").is_file()
