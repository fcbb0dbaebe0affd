"""A small training in one of several styles, which says when its hook is called.

The model has what differs from rank to rank, or seems to be equal now and then: statistics of
batches, random generators, metrics, and sums of gradients that are not exchanged yet.
"""

import functools
import sys

import numpy as np
import tensorflow as tf

import hvd_ft.tensorflow as hvd

EPOCHS, STEPS = 4, 10  # an epoch
style = sys.argv[1]

hvd.init()
tf.config.experimental.enable_op_determinism()
tf.keras.utils.set_random_seed(hvd.rank())  # the broadcast makes weights equal
data = np.random.default_rng(hvd.rank())
x, y = data.random([STEPS * 4, 8], np.float32), data.random([STEPS * 4, 1], np.float32)


@hvd.on_divergence
def diverged(found: hvd.Divergence) -> None:
    """Prints what the hook is given."""
    print(
        f"HOOK {hvd.rank()} {found.variable} {found.step} {found.rank} {found.ranks} "
        f"{found.variables} {found.equal_step}",
        flush=True,
    )


def network() -> tf.keras.Model:
    """Returns the model, built."""
    return tf.keras.Sequential(
        [
            tf.keras.layers.Dense(16, activation="relu", input_shape=[8], name="first"),
            tf.keras.layers.BatchNormalization(),
            tf.keras.layers.Dropout(0.2),
            tf.keras.layers.Dense(1, name="second"),
        ]
    )


def dataset() -> tf.data.Dataset:
    """Returns this rank's batches of an epoch."""
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(4)


def keras() -> None:
    """Trains with Model.fit."""
    model = network()
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.01), backward_passes_per_step=2)
    model.compile(optimizer, "mse", metrics=["mae"], weighted_metrics=["mape"])
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.FaultTolerance(snapshot_steps=3),
    ]
    for _ in range(2):
        model.fit(dataset(), epochs=EPOCHS // 2, verbose=0, callbacks=callbacks)


def state() -> None:
    """Trains in a loop of its own."""
    model, optimizer = network(), tf.keras.optimizers.legacy.Adam(0.01)
    best = tf.Variable(0.0)  # rank 0 alone keeps it, from some step on
    total = [tf.Variable(tf.zeros_like(weight)) for weight in model.trainable_variables]
    state = hvd.State(model, optimizer, variables=[best, *total], snapshot_steps=3)

    @tf.function
    def add(x: tf.Tensor, y: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        for each, gradient in zip(
            total, tape.gradient(loss, model.trainable_variables), strict=True
        ):
            each.assign_add(gradient)

    @tf.function
    def update() -> None:
        sums = [hvd.allreduce(each, name=f"sum.{n}") for n, each in enumerate(total)]
        optimizer.apply_gradients(zip(sums, model.trainable_variables, strict=True))
        for each in total:
            each.assign(tf.zeros_like(each))

    state.sync()
    batches = list(dataset())
    while state.batch < EPOCHS * STEPS:
        add(*batches[state.batch % STEPS])
        if state.batch % 2:
            update()
        if hvd.rank() == 0 and state.batch > 15:
            best.assign_add(1.0)
        state.batch += 1
        state.commit()
    state.finish()


def estimator() -> None:
    """Trains with tf.estimator."""

    def model_fn(features: tf.Tensor, labels: tf.Tensor, mode: str) -> tf.estimator.EstimatorSpec:
        tf.compat.v1.set_random_seed(hvd.rank())
        model = network()
        predicted = model(features, training=True)
        loss = tf.reduce_mean((predicted - labels) ** 2)
        optimizer = hvd.DistributedOptimizer(
            tf.compat.v1.train.AdamOptimizer(0.01), backward_passes_per_step=2
        )
        with tf.control_dependencies(model.get_updates_for(None)):
            train = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
        error = tf.compat.v1.metrics.mean_absolute_error(labels, predicted)
        with tf.control_dependencies([error[1]]):
            train = tf.group(train)
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)

    hooks = [
        hvd.estimator.FaultTolerance(snapshot_steps=3),
        hvd.BroadcastGlobalVariablesHook(0),
    ]
    trained = tf.estimator.Estimator(model_fn, config=hvd.estimator.run_config())
    trained.train(functools.partial(lambda: dataset().repeat()), hooks, steps=EPOCHS * STEPS)


{"keras": keras, "state": state, "estimator": estimator}[style]()
print(f"DONE {hvd.rank()}", flush=True)
