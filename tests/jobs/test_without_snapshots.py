"""A training without snapshots warns once, whatever its style; others do not."""

import sys
from pathlib import Path

import pytest
from conftest import RunHvdft

SCRIPT = """\
import sys
import numpy as np
import tensorflow as tf
import hvd_ft.tensorflow as hvd_tf
import hvd_ft.tensorflow.keras as hvd

hvd.init()
kept = sys.argv[1] == "kept"
X, Y = np.ones([8, 2], np.float32), np.ones([8, 1], np.float32)
hvd.allreduce(tf.ones([3]))  # is no training


def fit():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), "mse")
    callbacks = [hvd.callbacks.FaultTolerance()] if kept else []
    model.fit(X, Y, epochs=2, verbose=0, callbacks=callbacks)


def loop():
    weight = tf.Variable([1.0, 1.0])
    state = hvd_tf.State(variables=[weight])
    if kept:
        state.sync()
    for _ in range(3):
        with hvd_tf.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_sum(weight * weight)
        weight.assign_sub(0.1 * tape.gradient(loss, [weight])[0])
        if kept:
            state.commit()
    if kept:
        state.finish()


def session():
    hooks = [hvd_tf.estimator.FaultTolerance()] if kept else []
    with tf.Graph().as_default():
        weight = tf.compat.v1.get_variable("weight", [2])
        optimizer = hvd_tf.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.1))
        counter = tf.compat.v1.train.get_or_create_global_step()
        step = optimizer.minimize(tf.reduce_sum(weight * weight), counter)
        stop = tf.compat.v1.train.StopAtStepHook(3)
        with tf.compat.v1.train.MonitoredTrainingSession(hooks=[*hooks, stop]) as training:
            while not training.should_stop():
                training.run(step)


for style in sys.argv[2:]:
    {"fit": fit, "loop": loop, "session": session}[style]()
"""
LINE = "hvdft: this training takes no snapshots"


def lines(run_hvdft: RunHvdft, tmp_path: Path, *arguments: str) -> int:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    ended = run_hvdft(["run", "-np", "2", sys.executable, str(script), *arguments])
    assert ended.code == 0, ended.err
    return ended.err.count(LINE)


@pytest.mark.shows
@pytest.mark.parametrize("styles", [["fit", "loop"], ["session"]], ids=["fit", "session"])
def test_a_training_without_snapshots_says_so_once(
    run_hvdft: RunHvdft, tmp_path: Path, styles: list[str]
) -> None:
    assert lines(run_hvdft, tmp_path, "plain", *styles) == 1


def test_one_with_snapshots_says_nothing(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    assert lines(run_hvdft, tmp_path, "kept", "fit", "loop", "session") == 0
