"""Trains with samples that an ElasticSampler deals out, by `fit`, `state` or `draws`.

Every step adds up, over all ranks, how often each sample was trained with: a variable of the model,
so a snapshot has it. Each rank prints a hash of what it ended with, and these counts. When so many
of PAUSES steps are done, and there is a file to be waited for, rank 0 tells so on stderr and waits.
"""

import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import hvd_ft.tensorflow as hvd
from hvd_ft.system.await_file import await_file

SAMPLES, BATCH, EPOCHS = 150, 4, int(os.environ.get("EPOCHS", "3"))
PAUSES = {13: "AWAIT", 20: "AWAIT_MORE"}
EVERY = int(os.environ["EVERY"]) if "EVERY" in os.environ else None  # steps between snapshots
X = np.random.default_rng(1).standard_normal((SAMPLES, 6)).astype(np.float32)
sampler = hvd.ElasticSampler(SAMPLES, seed=3)


class Counting(tf.keras.Sequential):
    """Counts its samples; learns from one rank's mean and the next."""

    def __init__(self, layers: list[Any]) -> None:
        super().__init__(layers)
        self.counts = tf.Variable(tf.zeros([SAMPLES]), trainable=False, name="counts")
        self.steps = tf.Variable(0, trainable=False, name="steps")

    def train_step(self, data: Any) -> Any:
        x, indices = data
        once = tf.reduce_sum(tf.one_hot(indices, SAMPLES), 0)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - tf.sin(x[:, :1])))
        gradients = tape.gradient(loss, self.trainable_variables)
        gradients = [hvd.allreduce(g, name=f"g{n}") for n, g in enumerate(gradients)]
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.counts.assign_add(hvd.allreduce(once, op=hvd.Sum, name="once"))
        self.steps.assign_add(1)
        return {"loss": loss}


class Waits(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        wait(self.model)


def wait(model: Counting) -> None:
    steps = int(model.steps) if hvd.rank() == 0 else 0
    if steps in PAUSES and PAUSES[steps] in os.environ:
        print(f"waiting for the test after {steps} steps", file=sys.stderr, flush=True)
        assert await_file(Path(os.environ[PAUSES[steps]]), 200)


def load(indices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.gather(X, indices), indices


def fit(model: Counting) -> None:
    fellows = [hvd.callbacks.FaultTolerance(EVERY), Waits()]
    data = sampler.dataset(BATCH).map(load).prefetch(4)
    model.fit(data, epochs=EPOCHS, callbacks=fellows, verbose=0)


def state(model: Counting) -> None:
    step = tf.function(lambda x, indices: model.train_step((x, indices)), reduce_retracing=True)
    state = hvd.State(model, snapshot_steps=EVERY, sampler=sampler)
    state.sync()
    data = sampler.dataset(BATCH).unbatch().map(load).batch(BATCH).prefetch(4)
    while state.epoch < EPOCHS:
        for x, indices in state.batches(data):
            step(x, indices)
            wait(model)


def draws(model: Counting) -> None:
    step = tf.function(lambda x, indices: model.train_step((x, indices)), reduce_retracing=True)
    state = hvd.State(model, snapshot_steps=EVERY, sampler=sampler)
    state.sync()
    while sampler.epoch < EPOCHS:
        for indices in sampler.batches(BATCH):
            step(*load(tf.constant(indices)))
            wait(model)
            state.commit()
        sampler.set_epoch(sampler.epoch + 1)


STYLES: dict[str, Callable[[Counting], None]] = {"fit": fit, "state": state, "draws": draws}


def main() -> None:
    tf.config.experimental.enable_op_determinism()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    hvd.init()
    tf.keras.utils.set_random_seed(1)
    layers = tf.keras.layers
    model = Counting([layers.Dense(8, input_shape=(6,)), layers.Dropout(0.1), layers.Dense(1)])
    model.compile(tf.keras.optimizers.Adam(0.01))
    STYLES[sys.argv[1]](model)
    hvd.allreduce(tf.constant(1.0), name="end")
    parts = model.trainable_variables, model.optimizer.variables
    found = [hashlib.sha256(b"".join(v.numpy().tobytes() for v in part)) for part in parts]
    digests = " ".join(part.hexdigest()[:16] for part in found)
    counts = json.dumps([int(count) for count in model.counts.numpy()], separators=(",", ":"))
    # One write, or the ranks' lines mix.
    sys.stdout.write(f"END {hvd.rank()} of {hvd.size()} {digests} {counts}\n")


main()
