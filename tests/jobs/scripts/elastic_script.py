"""A script for Horovod Elastic, in the two forms of its documentation: `loop` and `keras`.

HVD is the module that is imported as `hvd`; nothing else shows that it runs on hvd_ft. Each rank
prints a hash of what it ended with.
"""

# ruff: noqa: B020 (that is how such scripts are written)

import hashlib
import importlib
import os
import sys
from typing import Any

import numpy as np
import tensorflow as tf

hvd: Any = importlib.import_module(os.environ.get("HVD", "hvd_ft.tensorflow"))
EPOCHS, BATCHES, BATCH, RATE = 3, 24, 4, 0.01
COMMIT_EVERY = 2


def data() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(5).standard_normal((EPOCHS * BATCHES * BATCH, 6)).astype(np.float32)
    return x, np.sin(x.sum(axis=1, keepdims=True))


def make_model() -> tf.keras.Model:
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Dense(8, input_shape=(6,)), layers.Dense(1)])
    model.build((None, 6))
    return model


def loop() -> tuple[tf.keras.Model, Any]:
    model = make_model()
    optimizer = tf.keras.optimizers.Adam(RATE * hvd.size())
    x, y = data()

    @tf.function
    def train_one_batch(images: Any, labels: Any, allreduce: bool = True) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(images, training=True) - labels))
        if allreduce:
            tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    def batch(epoch: int, number: int) -> tuple[Any, Any]:
        begin = (epoch * BATCHES + number * hvd.size() + hvd.rank()) * BATCH % len(x)
        return tf.constant(x[begin : begin + BATCH]), tf.constant(y[begin : begin + BATCH])

    # Initialize model and optimizer state so we can synchronize across workers
    train_one_batch(*batch(0, 0), allreduce=False)

    @hvd.elastic.run
    def train(state: Any) -> None:
        for state.epoch in range(state.epoch, EPOCHS):
            for state.batch in range(state.batch, BATCHES // hvd.size()):
                train_one_batch(*batch(state.epoch, state.batch))
                state.seen += 1
                if state.batch % COMMIT_EVERY == 0:
                    state.commit()
            hvd.allreduce(tf.constant(float(state.epoch)), name="epoch")
            state.batch = 0

    def on_state_reset() -> None:
        print("RESET", hvd.rank(), state.epoch, state.batch, flush=True)
        optimizer.learning_rate.assign(RATE * hvd.size())

    state = hvd.elastic.TensorFlowKerasState(model, optimizer, batch=0, epoch=0, seen=0)
    state.register_reset_callbacks([on_state_reset])
    train(state)
    return model, state


def keras() -> tuple[tf.keras.Model, Any]:
    model = make_model()
    x, y = data()
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).repeat().shuffle(64, seed=1).batch(BATCH)
    hvdk = importlib.import_module(f"{hvd.__name__}.keras")
    optimizer = hvdk.DistributedOptimizer(tf.keras.optimizers.Adam(RATE * hvd.size()))
    model.compile(loss="mse", optimizer=optimizer)
    # Train for one batch to initialize the state
    model.fit(dataset, steps_per_epoch=1, epochs=1, callbacks=None, verbose=0)
    state = hvdk.elastic.KerasState(model, batch=0, epoch=0)

    def on_state_reset() -> None:
        print("RESET", hvd.rank(), state.epoch, state.batch, flush=True)
        tf.keras.backend.set_value(model.optimizer.learning_rate, RATE * hvd.size())
        # Re-initialize, to join with possible new ranks
        state.model.fit(dataset, steps_per_epoch=1, epochs=1, callbacks=None, verbose=0)

    state.register_reset_callbacks([on_state_reset])
    callbacks = [
        hvdk.callbacks.MetricAverageCallback(),
        hvdk.elastic.CommitStateCallback(state, batches_per_commit=COMMIT_EVERY),
        hvdk.elastic.UpdateBatchStateCallback(state),
        hvdk.elastic.UpdateEpochStateCallback(state),
    ]

    @hvdk.elastic.run
    def train(state: Any) -> None:
        state.model.fit(
            dataset,
            steps_per_epoch=BATCHES // hvd.size(),
            epochs=EPOCHS - state.epoch,
            callbacks=callbacks,
            verbose=0,
        )

    train(state)
    return model, state


def main() -> None:
    tf.config.experimental.enable_op_determinism()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    hvd.init()
    tf.keras.utils.set_random_seed(1)
    model, state = {"loop": loop, "keras": keras}[sys.argv[1]]()
    variables = [*model.trainable_variables, *state.optimizer.variables()]
    digest = hashlib.sha256(b"".join(v.numpy().tobytes() for v in variables)).hexdigest()[:16]
    seen = getattr(state, "seen", "-")
    # One write, or the ranks' lines mix.
    sys.stdout.write(f"END {hvd.rank()} of {hvd.size()} {digest} {state.epoch} {seen}\n")


main()
