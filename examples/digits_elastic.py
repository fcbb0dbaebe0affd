"""Trains on scikit-learn's handwritten digits with a number of ranks that may change on the way.

Run it with `hvdft run -np 3 -H n0:2,n1:1 --min-np 1 --checkpoint-dir DIR python
examples/digits_elastic.py`, or `hvdft run -np 2 python …`; without an agent it is an ordinary
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

BATCH, RATE = 20, 0.0015


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

    layers = [tf.keras.layers.Dense(64, activation="relu"), tf.keras.layers.Dense(10)]
    model = tf.keras.Sequential([tf.keras.layers.Input((64,)), *layers])
    optimizer = tf.keras.optimizers.Adam(RATE * hvd.size())
    measure = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function(reduce_retracing=True)  # an epoch's last batch is shorter
    def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = measure(labels, model(images, training=True))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    sampler = hvd.ElasticSampler(len(train_x), seed=1)  # new: was dataset.shard(size, rank)
    batches = sampler.dataset(BATCH)  # new: batches of indices
    batches = batches.map(lambda rows: (tf.gather(train_x, rows), tf.gather(train_y, rows)))
    state = hvd.State(model, optimizer, sampler=sampler, loss=0.0, losses=[])  # new
    scale = lambda: optimizer.learning_rate.assign(RATE * hvd.size())  # noqa: E731
    state.register_reset_callbacks([scale])  # new: when the number of ranks has changed
    state.sync()  # new: was hvd.broadcast_variables
    while state.epoch < options.epochs:
        for images, labels in state.batches(batches.prefetch(2)):  # new: was `in batches`
            state.loss = float(step(images, labels))
        state.losses.append(float(hvd.allreduce(tf.constant(state.loss), name="loss")))
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
