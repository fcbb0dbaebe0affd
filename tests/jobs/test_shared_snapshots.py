"""The ranks of a node store what is equal on all of them once, and continue from it."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import RunHvdft

from hvd_ft.reports.report import read_report

# 12 MB of weights and as much in the optimizer's slots, equal on all ranks; 1 MB that is not.
SCRIPT = """\
import hashlib, sys
import numpy as np
import tensorflow as tf
import hvd_ft.tensorflow as hvd

hvd.init()
tf.config.experimental.enable_op_determinism()
tf.keras.utils.set_random_seed(5)
layers = [tf.keras.layers.Dense(1500, input_shape=[1000]), tf.keras.layers.Dense(1)]
model = tf.keras.Sequential(layers)
optimizer = tf.keras.optimizers.legacy.SGD(0.01, momentum=0.9)
own = tf.Variable(tf.zeros([256_000]))
state = hvd.State(model, optimizer, variables=[own], snapshot_overhead=0.5)
rng = np.random.default_rng(hvd.rank())
batches = [rng.random([4, 1000], np.float32) for _ in range(40)]

@tf.function
def step(x, first):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(x) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    gradients = [hvd.allreduce(g, name=f"g{n}") for n, g in enumerate(gradients)]
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    own.assign_add(tf.fill([256_000], tf.reduce_sum(x)))

state.sync()
while state.batch < len(batches):
    step(batches[state.batch], state.batch == 0)
    state.batch += 1
    state.commit()
state.finish()
digest = hashlib.sha256(b"".join(v.numpy().tobytes() for v in [*model.variables, own])).hexdigest()
sys.stdout.write(f"RESULT {hvd.rank()} {digest}\\n")
"""
RANKS = 3


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "shared.py"
    path.write_text(SCRIPT)
    return path


def run(run_hvdft: RunHvdft, script: Path, drills: Sequence[str]) -> tuple[list[str], str, Path]:
    report = script.with_name(f"report-{len(drills)}.jsonl")
    inject = [word for drill in drills for word in ("--inject", drill)]
    ended = run_hvdft(
        ["run", "-np", str(RANKS), "--report", str(report), *inject, sys.executable, str(script)],
        env={"HOROVOD_FT_MAX_FAILURES": "10"},
    )
    assert ended.code == 0, ended.err
    struck = re.findall(r"^hvdft: drill: (.*)$", ended.err, re.MULTILINE)
    assert sorted(struck) == sorted(drills), ended.err
    return sorted(ended.out.splitlines()), ended.err, report


DRILLS = {
    "one after the other": [
        "rank=0,point=mark",
        "rank=1,point=fingerprints",
        "rank=2,point=snapshot_write",
        "rank=0,incarnation=1,point=snapshot_delivered",
        "rank=1,incarnation=1,point=snapshot_published",
        "rank=2,incarnation=1,point=snapshot_drop",
        "rank=1,incarnation=2,step=30",
    ],
    "all at once": [f"rank={rank},step=20" for rank in range(RANKS)],
    "two of three between their parts": [
        "rank=0,point=snapshot_delivered",
        "rank=2,point=snapshot_write",
    ],
}


@pytest.mark.shows(later=True)
@pytest.mark.parametrize("name", DRILLS)
def test_killed_ranks_change_nothing(run_hvdft: RunHvdft, script: Path, name: str) -> None:
    undisturbed, _, _ = run(run_hvdft, script, [])
    assert len(undisturbed) == RANKS
    killed, _, _ = run(run_hvdft, script, DRILLS[name])
    assert killed == undisturbed


def test_the_state_counts_once(run_hvdft: RunHvdft, script: Path) -> None:
    _, err, report = run(run_hvdft, script, [])
    ranks = read_report(report).facts["ranks"]
    counts = {rank["snapshots"]["count"] for rank in ranks}
    assert len(counts) == 1, f"all take the same ones: {err}"
    assert counts.pop() >= 2, err
