"""A Keras training with two large layers; every rank writes down when each of its steps is done."""

import argparse
import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import hvd_ft.tensorflow.keras as hvd


class Times(tf.keras.callbacks.Callback):
    """Writes a line for each step: its number, and when it was done (CLOCK_MONOTONIC, ns).

    Args:
        folder: takes a file from every process.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        name = f"{os.environ['HOROVOD_FT_JOB']}-{hvd.rank()}-{os.environ['HOROVOD_FT_INCARNATION']}"
        self._file = (folder / name).open("a", buffering=1)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        step = int(self.model.optimizer.iterations)
        self._file.write(f"{step} {time.monotonic_ns()}\n")


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the flags of `train`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=Path, required=True)
    parser.add_argument("--width", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--snapshots", default="chosen", help="chosen, or a number of steps")
    return parser


def train(options: argparse.Namespace, callbacks: Sequence[tf.keras.callbacks.Callback]) -> None:
    """Trains, and prints the hash of what this rank ends with.

    Args:
        options: as parsed.
        callbacks: besides those that write down times and take snapshots.
    """
    hvd.init()
    tf.keras.utils.set_random_seed(1 + hvd.rank())
    tf.config.threading.set_intra_op_parallelism_threads(1)  # several ranks share the CPUs
    tf.config.threading.set_inter_op_parallelism_threads(2)
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Dense(options.width, activation="relu", input_shape=(options.width,)),
            layers.BatchNormalization(),  # statistics of each rank's own
            layers.Dense(options.width, activation="relu"),
            layers.Dense(1),
        ]
    )
    model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.Adam(1e-4)), "mse")
    generator = np.random.default_rng(hvd.rank())
    x = generator.standard_normal((16 * options.batch, options.width), np.float32)
    data = tf.data.Dataset.from_tensor_slices((x, np.sin(x.sum(1, keepdims=True))))
    every = None if options.snapshots == "chosen" else int(options.snapshots)
    model.fit(
        data.repeat().batch(options.batch),
        steps_per_epoch=options.steps,
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.FaultTolerance(every),
            Times(options.times),
            *callbacks,
        ],
        verbose=0,
    )
    kept = [*model.variables, *model.optimizer.variables]
    digest = hashlib.sha256(b"".join(each.numpy().tobytes() for each in kept)).hexdigest()[:16]
    size = sum(each.shape.num_elements() * each.dtype.size for each in kept)
    print(f"END {hvd.rank()} of {hvd.size()}: {digest}, {size} bytes", flush=True)


if __name__ == "__main__":
    train(parser().parse_args(), [])
