"""Trains in many ways, one after the other, and prints what each way ended with.

KILLS may hold words like `fit:1:0:7`: in `fit` rank 1's process of incarnation 0 dies when 7 steps
are done. The argument is rank 0's directory for checkpoints.
"""

import hashlib
import os
import random
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf

import hvd_ft.tensorflow as hvd_tf
import hvd_ft.tensorflow.keras as hvd

layers, callbacks, optimizers = tf.keras.layers, tf.keras.callbacks, tf.keras.optimizers
STEPS, BATCH = 8, 4  # in an epoch, in a step
KILLS = os.environ.get("KILLS", "").split()
Result = tuple[tf.keras.Model, list[Any]]  # and what else has to be the same


class Ends(callbacks.Callback):
    """Tells when a step of a fit has ended."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self._way = way
        self.drawn = 0.0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.drawn += draw_of_all()
        step_ends(self._way, int(self.model.optimizer.iterations))


class OwnStep(tf.keras.Model):
    """A model with a step of the user's own."""

    def __init__(self, inner: tf.keras.Model) -> None:
        super().__init__()
        self.inner = inner

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        return self.inner(x, training=training)

    @tf.function
    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
        return {"loss": loss}


def step_ends(way: str, step: int) -> None:
    if f"{way}:{hvd.rank()}:{hvd.incarnation()}:{step}" in KILLS:
        os.kill(os.getpid(), signal.SIGKILL)


def draw_of_all() -> float:
    """Draws from each kind of generator that there is."""
    eager = tf.random.uniform([]) + tf.random.uniform([], seed=5) + traced_draw()
    generator = tf.random.get_global_generator().uniform([])
    return random.random() + float(np.random.rand()) + float(eager) + float(generator)


@tf.function
def traced_draw() -> tf.Tensor:
    return tf.nn.dropout(tf.ones([16]), 0.5)[3] + tf.random.normal([])


def pairs(seed: int) -> tf.data.Dataset:
    """Other ones on every rank, and noise on them that has no seed of its own."""
    x = np.random.default_rng([seed, hvd.rank()]).standard_normal((STEPS * BATCH, 6))
    x = x.astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices((x, np.sin(x.sum(axis=1, keepdims=True))))
    noisy = data.shuffle(len(x)).map(lambda x, y: (x + tf.random.normal([6], 0, 0.1), y))
    return noisy.batch(BATCH)


def make_model(normalisation: Callable[[], Any] = layers.BatchNormalization) -> tf.keras.Model:
    top = [layers.Dropout(0.2), layers.Dense(1)]
    return tf.keras.Sequential([layers.Dense(6, input_shape=(6,)), normalisation(), *top])


def fit(folder: str) -> Result:
    """Steps that sum up gradients, and callbacks that remember; validation."""
    model = make_model()
    optimizer = hvd.DistributedOptimizer(optimizers.Adam(0.01), backward_passes_per_step=3)
    model.compile(optimizer, "mse", metrics=["mae"])
    stop = callbacks.EarlyStopping("val_loss", 10, patience=2, restore_best_weights=True)
    best = callbacks.ModelCheckpoint(
        f"{folder}/best.h5", "val_loss", save_best_only=True, save_weights_only=True
    )
    ends = Ends("fit")
    fellows = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(0.01, warmup_epochs=2),
        *([best] if hvd.rank() == 0 else []),
        *(stop, hvd.callbacks.FaultTolerance(4), ends),
    ]
    no_steps(model)
    told = model.fit(pairs(1), epochs=9, validation_data=pairs(2), callbacks=fellows, verbose=0)
    assert len(told.epoch) == 3, told.epoch  # it has stopped early
    results = [told.history, ends.drawn, model.evaluate(pairs(3), verbose=0)]
    if hvd.rank() == 0:
        last = model.get_weights()
        model.load_weights(f"{folder}/best.h5")
        results.append(digest(model.get_weights()))
        model.set_weights(last)
    return model, results


def legacy(folder: str) -> Result:
    """An optimizer of the old kind, two steps at once, and a step of the user's own."""
    model = OwnStep(make_model(hvd_tf.SyncBatchNormalization))
    model.build((None, 6))
    optimizer = hvd.DistributedOptimizer(optimizers.legacy.Nadam(0.01))
    model.compile(optimizer, "mse", steps_per_execution=2)
    broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    fellows = [broadcast, hvd.callbacks.FaultTolerance(4), ends := Ends("legacy")]
    told = model.fit(pairs(4), epochs=2, callbacks=fellows, verbose=0)
    no_steps(model)
    return model, [told.history, ends.drawn]


def no_steps(model: tf.keras.Model) -> None:
    """Fits as a script does that finds all of its epochs done."""
    fellows = [hvd.callbacks.FaultTolerance(4)]
    model.fit(pairs(1), initial_epoch=2, epochs=2, callbacks=fellows, verbose=0)


def mixed(folder: str) -> Result:
    """Mixed precision, whose optimizer scales losses around Horovod's."""
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    model = tf.keras.Sequential([make_model(), layers.Activation("linear", dtype="float32")])
    model.compile(hvd.DistributedOptimizer(optimizers.Adam(0.01)), "mse", metrics=["mae"])
    tf.keras.mixed_precision.set_global_policy("float32")
    broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    fellows = [broadcast, hvd.callbacks.FaultTolerance(3), ends := Ends("mixed")]
    told = model.fit(pairs(7), epochs=2, callbacks=fellows, verbose=0)
    return model, [told.history, ends.drawn]


def minimise(folder: str) -> Result:
    """A loop of the user's own whose optimizer sums up gradients."""
    model = make_model()
    optimizer = hvd.DistributedOptimizer(
        optimizers.RMSprop(0.01), backward_passes_per_step=2, average_aggregated_gradients=True
    )

    @tf.function
    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        optimizer.minimize(loss, model.trainable_variables, tape=tape)
        return loss

    return loop("minimise", model, optimizer, step)


def tape(folder: str) -> Result:
    """Eager steps with a DistributedGradientTape, and gradients of 16 bits."""
    model, optimizer = make_model(), optimizers.legacy.SGD(0.01, momentum=0.9)

    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        kept = hvd_tf.DistributedGradientTape(
            tf.GradientTape(), compression=hvd_tf.Compression.fp16
        )
        with kept:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(kept.gradient(loss, variables), variables, strict=True))
        return loss

    return loop("tape", model, optimizer, step)


def loop(
    way: str, model: tf.keras.Model, optimizer: Any, step: Callable[[tf.Tensor, tf.Tensor], Any]
) -> Result:
    state = hvd_tf.State(model=model, optimizer=optimizer, snapshot_steps=3, losses=[])
    state.sync()
    data = pairs(5)
    while state.epoch < 2:
        for x, y in state.batches(data):
            scale = random.choice([0.5, 1.0]) + draw_of_all()
            state.losses.append(float(step(x * scale, y)))
            step_ends(way, len(state.losses))
    state.finish()
    return model, state.losses


def elastic(folder: str) -> Result:
    """`hvd.elastic` as it is: a restarted process does the loop again from its beginning."""
    model, optimizer = make_model(), hvd.DistributedOptimizer(optimizers.SGD(0.01))
    model.compile(optimizer, "mse")
    seen = tf.Variable(float(hvd.rank()))
    state = hvd.elastic.KerasState(model, batch=hvd.rank(), losses=[])
    other = hvd_tf.elastic.TensorFlowState([seen])

    @hvd.elastic.run
    def train(state: Any) -> None:
        other.sync()
        assert state.batch == 0
        for state.batch, (x, y) in enumerate(pairs(6), 1):
            state.losses = [*state.losses, model.train_on_batch(x, y)]
            seen.assign_add(1.0)
            step_ends("elastic", state.batch)
            if state.batch % 3 == 0:
                state.commit()
                other.commit()

    train(state)
    state.restore()
    other.restore()
    assert state.batch == len(state.losses) == 6, state.batch
    return model, [*state.losses, float(seen)]


WAYS = {way.__name__: way for way in (minimise, tape, fit, mixed, legacy, elastic)}


def digest(values: Iterable[np.ndarray]) -> str:
    return hashlib.sha256(b"".join(value.tobytes() for value in values)).hexdigest()[:16]


def main() -> None:
    tf.config.experimental.enable_op_determinism()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    hvd.init()
    tf.keras.utils.set_random_seed(1 + hvd.rank())
    tf.random.set_global_generator(tf.random.Generator.from_seed(1 + hvd.rank()))
    for name, way in WAYS.items():
        model, results = way(sys.argv[1])
        drawn = draw_of_all()
        trained = digest(weight.numpy() for weight in model.trainable_variables)
        kept = digest(weight.numpy() for weight in model.non_trainable_variables)
        own = hashlib.sha256(repr([results, drawn]).encode()).hexdigest()[:16]
        # One write, or the ranks' lines mix.
        sys.stdout.write(f"RESULT {name} {hvd.rank()} {trained} {kept} {own}\n")
        sys.stdout.flush()
    hvd.allreduce(tf.constant(1.0), name="end")
    sys.stdout.write(f"END {hvd.rank()} {hvd.incarnation()}\n")


main()
