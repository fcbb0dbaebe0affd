"""Keras's fit, whose ranks share large variables and have statistics, generators and data of their
own. Rank 0 tells on stderr when ten steps are done, and waits after 40 until the file AWAIT is
there, if there is such a variable. The argument is the number of epochs.
"""

import hashlib
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import hvd_ft.tensorflow.keras as hvd

STEPS, WIDTH, LAST = 24, 800, 40
EVERY = 8  # steps between snapshots
layers = tf.keras.layers


class TellsSteps(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        steps = int(self.model.optimizer.iterations)
        if hvd.rank() == 0 and steps % 10 == 0:
            print(f"{steps} steps are done", file=sys.stderr, flush=True)
        if hvd.rank() == 0 and steps == LAST and (awaited := os.environ.get("AWAIT")):
            while not Path(awaited).exists():
                time.sleep(0.01)


def digest(variables: Iterable[tf.Variable]) -> str:
    return hashlib.sha256(b"".join(v.numpy().tobytes() for v in variables)).hexdigest()[:16]


def pairs(seed: int, rows: int) -> tf.data.Dataset:
    x = np.random.default_rng(seed).standard_normal((rows, 64), np.float32)
    return tf.data.Dataset.from_tensor_slices((x, np.sin(x.sum(1, keepdims=True))))


def train(data: tf.data.Dataset, epochs: int) -> None:
    tf.keras.utils.set_random_seed(7 + hvd.rank())
    model = tf.keras.Sequential(
        [
            layers.Dense(WIDTH, input_shape=(64,)),
            layers.BatchNormalization(),
            layers.Dropout(0.1),
            layers.Dense(WIDTH, activation="relu"),
            layers.Dense(1),
        ]
    )
    model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.Adam(1e-3)), "mse")
    fellows = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.FaultTolerance(EVERY),
        TellsSteps(),
    ]
    shuffled = data.shuffle(100, seed=hvd.rank()).batch(8)
    model.fit(shuffled, epochs=epochs, callbacks=fellows, verbose=0)
    parts = model.trainable_weights, model.optimizer.variables, model.non_trainable_weights
    print("END", hvd.rank(), "of", hvd.size(), *map(digest, parts))


if __name__ == "__main__":
    hvd.init()
    train(pairs(hvd.rank(), 8 * STEPS), int(sys.argv[1]))
