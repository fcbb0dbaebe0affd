"""Trains on scikit-learn's handwritten digits with a loop of its own and a DistributedGradientTape.

Run it with `hvdft run -np 2 python examples/digits_loop.py`; without an agent it is an ordinary
Horovod script. The lines that stock Horovod does not have are marked with `# new`.
"""

import argparse
import hashlib
import json

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import hvd_ft.tensorflow as hvd  # new: was horovod.tensorflow

BATCH = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()

    hvd.init()
    tf.keras.utils.set_random_seed(1)
    tf.config.experimental.enable_op_determinism()
    digits = load_digits()
    data = train_test_split(digits.data.astype(np.float32) / 16, digits.target, random_state=1)
    train_x, test_x, train_y, test_y = data
    own = tf.data.Dataset.from_tensor_slices((train_x, train_y)).shard(hvd.size(), hvd.rank())
    # All ranks need the same number of steps, so what is left over is dropped.
    batches = own.shuffle(len(train_x), seed=1).take(len(train_x) // hvd.size())
    batches = batches.batch(BATCH, drop_remainder=True)

    layers = [tf.keras.layers.Dense(64, activation="relu"), tf.keras.layers.Dense(10)]
    model = tf.keras.Sequential([tf.keras.layers.Input((64,)), *layers])
    optimizer = tf.keras.optimizers.Adam(0.003)
    measure = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = measure(labels, model(images, training=True))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    state = hvd.State(model=model, optimizer=optimizer, loss=0.0, losses=[])  # new
    state.sync()  # new: was hvd.broadcast_variables
    while state.epoch < options.epochs:
        for images, labels in state.batches(batches):  # new: was `in batches`
            state.loss = float(step(images, labels))  # what is used behind the loop is in it
        mean = hvd.allreduce(tf.constant(state.loss), name="loss")
        state.losses.append(float(mean))
    state.finish()  # new

    accuracy = float(np.mean(np.argmax(model(test_x), axis=1) == test_y))
    weights = b"".join(weight.tobytes() for weight in model.get_weights())
    result = {
        "rank": hvd.rank(),
        "incarnation": hvd.incarnation(),
        "losses": state.losses,
        "accuracy": round(accuracy, 4),
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
