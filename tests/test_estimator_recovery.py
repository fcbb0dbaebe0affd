"""Real jobs with tf.estimator whose ranks are killed end as an undisturbed job, bit for bit."""

import random
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import RunHvdft

pytest.importorskip("tensorflow_estimator")

SCRIPT = str(Path(__file__).with_name("estimator_script.py"))
STYLES = ["train", "evaluate", "session"]
RANKS = 2
FIRST, SECOND = random.Random(20220512).sample(range(2, 24), 2)  # steps at which to die

# By style and rank: hashes of the weights and of the rank's own statistics, and metrics.
Results = dict[tuple[str, int], list[str]]


def train(
    run_hvdft: RunHvdft, styles: Sequence[str], drills: Sequence[str], *arguments: str
) -> Results:
    inject = [word for drill in drills for word in ("--inject", drill)]
    command = [sys.executable, SCRIPT, ",".join(styles), *arguments]
    ended = run_hvdft(
        ["run", "-np", str(RANKS), *inject, *command],
        timeout=240,
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


def test_killed_ranks_change_nothing(run_hvdft: RunHvdft) -> None:
    expected = train(run_hvdft, STYLES, [])
    for style in STYLES:
        weights, statistics = zip(
            *(expected[style, rank][:2] for rank in range(RANKS)), strict=True
        )
        assert len(set(weights)) == 1
        assert len(set(statistics)) == RANKS
    drills = [
        # In the first training, in train_and_evaluate, at the end of all.
        *(f"rank=1,step={FIRST}", "rank=1,incarnation=1,op=115", "rank=1,incarnation=2,point=end"),
        # In the second training, in a recovery, in the session without an Estimator.
        *("rank=0,op=75", "rank=0,incarnation=1,point=restore", "rank=0,incarnation=2,op=175"),
    ]
    assert train(run_hvdft, STYLES, drills) == expected


def test_rank_0_alone_writes_checkpoints(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    """And finds more of them when it comes back than there were when it began."""
    folder = tmp_path / "model"
    drills = [f"rank=0,step={SECOND}", "rank=0,incarnation=1,point=end"]
    results = train(run_hvdft, ["evaluate"], drills, str(folder))
    assert results["evaluate", 0][0] == results["evaluate", 1][0]
    assert (folder / "model.ckpt-24.index").is_file()
    assert list(tmp_path.iterdir()) == [folder]
