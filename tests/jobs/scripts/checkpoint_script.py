"""A fit, a loop with a State, and another fit; prints hashes of what each rank ended with.

PLAN may be `end:1:9`: when 9 steps of loop 1 are done, every rank waits until a checkpoint has been
asked for, and four steps later, so that there is a snapshot between, until one of this loop is
there; then rank 0 exits with code 7. Or `signal:1:9`: rank 0 sends SIGNAL to LAUNCHER, and four
steps after the checkpoint has been asked for all wait for the end. Or `pause:1:9`: there they wait.
Or `lose:`: rank 0 puts a file in the directory's place, and two checkpoints fail.
"""

import hashlib
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from averaged import Averaged

import hvd_ft.tensorflow as hvd
from hvd_ft import native
from hvd_ft.native.types import EventType

STEPS, BATCH, EPOCHS = 8, 4, 2  # in an epoch, in a step
EVERY = 4  # steps between snapshots, besides those at marks
UNITS = int(os.environ.get("UNITS", "8"))
PLAN = dict(word.split(":", 1) for word in os.environ.get("PLAN", "").split())
LOST = 6  # the step of a loop, for `lose:`
FAILED: dict[int, int] = {}  # checkpoints asked for when one had failed, by loop
SHARED = Path(os.environ.get("CHECKPOINTS", "/nowhere"))


def planned(what: str, loop: int, step: int) -> bool:
    return PLAN.get(what) == f"{loop}:{step}"


def later(what: str, loop: int, step: int) -> bool:
    return planned(what, loop, step - EVERY)


def await_round() -> None:
    """Waits until a checkpoint has been asked for, and its mark set."""
    kinds = (EventType.CHECKPOINT, EventType.CHECKPOINTED)
    while True:
        asked = [e for e in native.worker().events() if e.type in kinds]
        if asked and asked[-1].type is EventType.CHECKPOINT:
            return
        time.sleep(0.01)


def asked_for() -> int:
    return sum(event.type is EventType.CHECKPOINT for event in native.worker().events())


def lose_directory(loop: int, step: int) -> None:
    """Two checkpoints fail: a snapshot follows each request before its failure is awaited."""
    note = Path(os.environ["HOROVOD_FT_DIR"], "unwritten")
    if step == LOST:
        if loop == 0:
            SHARED.rename(SHARED.with_name("away"))
            SHARED.touch()
        await_round()
        while asked_for() <= FAILED.get(loop - 1, 0):
            time.sleep(0.01)
    if step == LOST + EVERY:
        said = "checkpoints were" if loop else ""
        while not (note.exists() and said in note.read_text()):
            time.sleep(0.01)
        FAILED[loop] = asked_for()


def step_ends(loop: int, step: int) -> None:
    if "lose" in PLAN and hvd.rank() == 0 and loop < 2:
        lose_directory(loop, step)
    if planned("pause", loop, step):
        sys.stderr.write(f"PAUSED {hvd.rank()}\n")
        signal.pause()
    for what in ("end", "signal"):
        if what == "signal" and planned(what, loop, step) and hvd.rank() == 0:
            os.kill(int(os.environ["LAUNCHER"]), int(os.environ["SIGNAL"]))
        if planned(what, loop, step):
            await_round()
        if later(what, loop, step):
            while what == "signal":
                signal.pause()
            while not list(SHARED.glob(f"*-loop{loop}-step*")):
                time.sleep(0.01)
            if hvd.rank() == 0:
                sys.exit(7)


class Ends(tf.keras.callbacks.Callback):
    def __init__(self, loop: int) -> None:
        super().__init__()
        self._loop = loop
        self.drawn = 0.0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.drawn += draw()
        step_ends(self._loop, int(self.model.optimizer.iterations))


def draw() -> float:
    return random.random() + float(np.random.rand()) + float(tf.random.uniform([]))


def data(seed: int) -> tf.data.Dataset:
    x = np.random.default_rng([seed, hvd.rank()]).standard_normal((STEPS * BATCH, 6))
    x = x.astype(np.float32)
    pairs = tf.data.Dataset.from_tensor_slices((x, np.sin(x.sum(axis=1, keepdims=True))))
    return pairs.shuffle(len(x)).batch(BATCH)


def make_model() -> Averaged:
    layers = tf.keras.layers
    parts = [layers.Dense(UNITS, input_shape=(6,)), layers.Dense(UNITS)]
    return Averaged([*parts, layers.BatchNormalization(), layers.Dropout(0.2), layers.Dense(1)])


def fit(loop: int) -> list[Any]:
    model = make_model()
    model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.01)), "mse", ["mae"])
    fellows = [
        hvd.keras.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.keras.callbacks.FaultTolerance(EVERY),
        ends := Ends(loop),
    ]
    told = model.fit(data(loop), epochs=EPOCHS, callbacks=fellows, verbose=0)
    return [told.history, ends.drawn, digest([*model.get_weights(), *model.averages()])]


def own_loop(loop: int) -> list[Any]:
    model, optimizer = make_model(), tf.keras.optimizers.legacy.SGD(0.01, momentum=0.9)

    @tf.function
    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        gradients = tape.gradient(loss, model.trainable_variables)
        gradients = [hvd.allreduce(g, name=f"g{n}") for n, g in enumerate(gradients)]
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    state = hvd.State(model, optimizer, snapshot_steps=EVERY, losses=[])
    # One write, or the ranks' lines mix.
    state.register_reset_callbacks([lambda: sys.stdout.write(f"RESET {len(state.losses)}\n")])
    state.sync()
    pairs = data(loop)
    while state.epoch < EPOCHS:
        for x, y in state.batches(pairs):
            state.losses.append(float(step(x * draw(), y)))
            step_ends(loop, len(state.losses))
    state.finish()
    return [state.losses, digest(model.get_weights())]


def digest(values: list[np.ndarray]) -> str:
    return hashlib.sha256(b"".join(value.tobytes() for value in values)).hexdigest()[:16]


def main() -> None:
    tf.config.experimental.enable_op_determinism()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    hvd.init()
    tf.keras.utils.set_random_seed(1 + hvd.rank())
    results = [fit(0), own_loop(1), fit(2), draw()]
    total = hvd.allreduce(tf.constant(1.0), op=hvd.Sum, name="end")
    text = hashlib.sha256(repr([results, float(total)]).encode()).hexdigest()[:16]
    # One write, or the ranks' lines mix.
    sys.stdout.write(f"RESULT {hvd.rank()} {text}\n")


main()
