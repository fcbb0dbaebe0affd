"""A Keras training with a model of a given width; rank 0 prints its seconds a step as JSON."""

import argparse
import hashlib
import json
import resource
import statistics
import time
from typing import Any

import numpy as np
import tensorflow as tf

import hvd_ft.tensorflow.keras as hvd

WARM_UP = 5  # steps that trace functions and make slots


class StepTimes(tf.keras.callbacks.Callback):
    """Notes when each step begins."""

    def __init__(self) -> None:
        super().__init__()
        self.begins: list[float] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.begins.append(time.perf_counter())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--snapshots", required=True, help="none, chosen, or a number of steps")
    options = parser.parse_args()

    hvd.init()
    tf.keras.utils.set_random_seed(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)  # several ranks share the CPUs
    tf.config.threading.set_inter_op_parallelism_threads(2)
    layers = [tf.keras.layers.Dense(options.width, activation="relu") for _ in range(2)]
    model = tf.keras.Sequential(
        [tf.keras.layers.Input((options.width,)), *layers, tf.keras.layers.Dense(10)]
    )
    model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.Adam(1e-4)), "mse")
    generator = np.random.default_rng(hvd.rank())
    x = generator.random((16 * options.batch, options.width), np.float32)
    y = generator.random((16 * options.batch, 10), np.float32)
    data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(options.batch)
    times = StepTimes()
    callbacks = [times, hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    if options.snapshots != "none":
        steps = None if options.snapshots == "chosen" else int(options.snapshots)
        callbacks.append(hvd.callbacks.FaultTolerance(steps))
    model.fit(data, steps_per_epoch=options.steps, callbacks=callbacks, verbose=0)
    if hvd.rank() == 0:
        took = np.diff(times.begins)[WARM_UP:]
        kept = [*model.variables, *model.optimizer.variables()]
        result = {
            "snapshot_mb": sum(v.shape.num_elements() * v.dtype.size for v in kept) / 1e6,
            "step_median_ms": statistics.median(took) * 1e3,
            "step_mean_ms": statistics.fmean(took) * 1e3,
            "resident_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "digest": hashlib.sha256(b"".join(v.numpy().tobytes() for v in kept)).hexdigest()[:12],
        }
        print("RESULT", json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
