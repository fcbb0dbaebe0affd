"""An Estimator without a model directory, with large layers; rank 0 prints what it took.

Started by run.py.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import hvd_ft.tensorflow as hvd

v1 = tf.compat.v1
WARM_UP = 3  # steps that do not count: tracing, first connections


def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
    hidden = v1.layers.dense(features["x"], params["width"], activation=tf.nn.relu)
    logits = v1.layers.dense(hidden, params["width"])
    loss = v1.losses.mean_squared_error(labels, logits)
    optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.01))
    train = optimizer.minimize(loss, v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)


class Times(tf.estimator.SessionRunHook):
    """Notes when each step was done."""

    def __init__(self) -> None:
        self.done: list[float] = []

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.done.append(time.perf_counter())


def config_for(checkpoints: str) -> Any:
    """Returns the RunConfig of a side.

    Args:
        checkpoints: `none`, as with `hvdft patch`; `temporary`, what an Estimator does by itself:
            a temporary directory; or `frequent`, the same with a checkpoint every second step.
    """
    if checkpoints == "none":
        return hvd.estimator.run_config()
    if checkpoints == "frequent":
        return tf.estimator.RunConfig(save_checkpoints_steps=2)
    return tf.estimator.RunConfig()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--checkpoints", choices=["none", "temporary", "frequent"], required=True)
    options = parser.parse_args()
    hvd.init()
    tf.keras.utils.set_random_seed(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)  # several ranks share the CPUs
    data = np.ones((4, options.width), np.float32)

    def inputs() -> tf.data.Dataset:
        return tf.data.Dataset.from_tensors(({"x": data}, data)).repeat()

    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder  # where an Estimator without a directory makes one
        estimator = tf.estimator.Estimator(
            model_fn, config=config_for(options.checkpoints), params={"width": options.width}
        )
        times = Times()
        hooks = [hvd.BroadcastGlobalVariablesHook(0), hvd.estimator.FaultTolerance(), times]
        begin = time.perf_counter()
        estimator.train(inputs, hooks, max_steps=options.steps)
        seconds = time.perf_counter() - begin
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        written = sum(path.stat().st_size for path in files)
        tempfile.tempdir = None
    if hvd.rank() == 0:
        steps = np.diff(times.done[WARM_UP:])
        result = {
            "train_s": round(seconds, 3),
            "step_median_s": round(float(np.median(steps)), 4),
            "step_mean_s": round(float(np.mean(steps)), 4),
            "left_mb": round(written / 1e6, 2),
        }
        os.write(1, f"RESULT {json.dumps(result)}\n".encode())


if __name__ == "__main__":
    main()
