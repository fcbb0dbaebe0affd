"""Trains, dies where KILLS says, and prints a hash of the final weights.

KILLS holds words like `1:0:13`: rank 1 in incarnation 0 kills itself at the end of step 13, counted
over the whole training, or at one of the places `start`, `init`, `prologue`, `end`. With a fourth
part it dies otherwise: `raise` (an uncaught exception) or `exit` (os._exit), or not before the
job's warm spare of a number is ready: `spare1`.
"""

import hashlib
import os
import signal
import sys
import time
from typing import Any

KILLS = {
    (rank, incarnation, where): how
    for rank, incarnation, where, *how in (w.split(":") for w in os.environ["KILLS"].split())
}


def place(where: str | int) -> None:
    """Dies here if KILLS says so."""
    rank, incarnation = os.environ["HOROVOD_RANK"], os.environ["HOROVOD_FT_INCARNATION"]
    how = KILLS.get((rank, incarnation, str(where)))
    if how == ["raise"]:
        raise RuntimeError("as KILLS says")
    if how == ["exit"]:
        os._exit(1)
    if how and how[0].startswith("spare"):
        ready = os.path.join(os.environ["HOROVOD_FT_DIR"], f"ready-{how[0].removeprefix('spare')}")
        give_up = time.monotonic() + 60
        while not os.path.exists(ready) and time.monotonic() < give_up:
            time.sleep(0.02)
    if how is not None:
        os.kill(os.getpid(), signal.SIGKILL)


place("start")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import hvd_ft.tensorflow as hvd_tf  # noqa: E402
import hvd_ft.tensorflow.keras as hvd  # noqa: E402

EPOCHS, STEPS, BATCH = 3, 12, 4


class Step(tf.keras.callbacks.Callback):
    """Counts steps, and does a collective of its own at the end of an epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.step = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.step += 1
        place(self.step)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        hvd.allreduce(tf.constant(float(epoch)), name="epoch")


def data() -> tf.data.Dataset:
    generator = np.random.default_rng(hvd.rank())
    x = generator.standard_normal((STEPS * BATCH, 6)).astype(np.float32)
    pairs = tf.data.Dataset.from_tensor_slices((x, np.sin(x.sum(axis=1, keepdims=True))))
    return pairs.shuffle(len(x), seed=1).batch(BATCH)


def make_model() -> tf.keras.Model:
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [layers.Dense(8, input_shape=(6,)), layers.BatchNormalization(), layers.Dense(1)]
    )
    return model


def keras() -> tf.keras.Model:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.01))
    model.compile(optimizer, "mse", metrics=["mae"])
    callbacks = [
        Step(),
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.FaultTolerance(snapshot_steps=5),
        hvd.callbacks.MetricAverageCallback(),
    ]
    model.fit(data(), epochs=EPOCHS, callbacks=callbacks, verbose=0)
    return model


def loop() -> tf.keras.Model:
    model, optimizer = make_model(), tf.keras.optimizers.Adam(0.01)

    @tf.function
    def train_step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with hvd_tf.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    state = hvd_tf.State(model=model, optimizer=optimizer, snapshot_steps=5, step=0, loss=0.0)
    state.sync()
    pairs = data()
    while state.epoch < EPOCHS:
        for x, y in state.batches(pairs):
            state.loss += float(train_step(x, y))
            state.step += 1
            place(state.step)
        hvd.allreduce(tf.constant(float(state.epoch)), name="epoch")
    state.finish()
    return model


def main() -> None:
    tf.keras.utils.set_random_seed(1 + int(os.environ["HOROVOD_RANK"]))
    tf.config.experimental.enable_op_determinism()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    place("init")
    hvd.init()
    hvd_tf.broadcast_object({"of": hvd.rank()}, 0)
    place("prologue")
    model = keras() if sys.argv[1] == "keras" else loop()
    place("end")
    total = hvd.allreduce(tf.constant(1.0), op=hvd.Sum, name="end")
    assert total == hvd.size()
    trained = {id(v): v for v in model.trainable_variables}.values()
    weights = b"".join(v.numpy().tobytes() for v in trained)
    kept = b"".join(v.numpy().tobytes() for v in model.non_trainable_variables)
    digests = [hashlib.sha256(part).hexdigest()[:16] for part in (weights, kept)]
    # One write, or the ranks' lines mix.
    sys.stdout.write(f"RESULT {hvd.rank()} {hvd.incarnation()} {' '.join(digests)}\n")


main()
