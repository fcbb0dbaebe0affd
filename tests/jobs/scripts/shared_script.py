"""Two training loops whose ranks share their snapshots; prints a hash of all that came out.

In the first one marks say when a snapshot is taken, in the second one every fourth step has one.
"""

import hashlib
import sys

import numpy as np
import tensorflow as tf

import hvd_ft.tensorflow as hvd

hvd.init()
tf.config.experimental.enable_op_determinism()
tf.keras.utils.set_random_seed(5)
layers = [tf.keras.layers.Dense(700, input_shape=[1000]), tf.keras.layers.Dense(1)]
model = tf.keras.Sequential(layers)
optimizer = tf.keras.optimizers.legacy.SGD(0.01, momentum=0.9)
own = tf.Variable(tf.zeros([50_000]))  # is particular to each rank
draw = np.random.default_rng(hvd.rank())
batches = [draw.random([4, 1000], np.float32) for _ in range(32)]


@tf.function
def step(x: tf.Tensor) -> None:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(x) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    gradients = [hvd.allreduce(g, name=f"g{n}") for n, g in enumerate(gradients)]
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    own.assign_add(tf.fill([50_000], tf.reduce_sum(x)))


for steps, settings in ((16, {"snapshot_overhead": 0.5}), (52, {"snapshot_steps": 4})):
    state = hvd.State(model, optimizer, variables=[own], **settings)
    state.sync()
    while state.batch < steps:
        step(batches[state.batch % len(batches)])
        state.batch += 1
        state.commit()
    state.finish()
contents = b"".join(v.numpy().tobytes() for v in [*model.variables, *optimizer.variables(), own])
sys.stdout.write(f"RESULT {hvd.rank()} {hashlib.sha256(contents).hexdigest()}\n")
