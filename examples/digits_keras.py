"""Trains a small CNN on scikit-learn's handwritten digits.

Run it with `hvdft run -np 4 python examples/digits_keras.py`; without an agent it is an ordinary
Horovod script. The lines that stock Horovod does not have are marked with `# new`.
"""

import argparse
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import hvd_ft.tensorflow.keras as hvd  # new: was horovod.tensorflow.keras


def batches(images: np.ndarray, labels: np.ndarray) -> tf.data.Dataset:
    own = tf.data.Dataset.from_tensor_slices((images, labels)).shard(hvd.size(), hvd.rank())
    return own.shuffle(len(images), seed=1).batch(14, drop_remainder=True)


def small_cnn() -> tf.keras.Model:
    layers = tf.keras.layers
    convolutions = [layers.Conv2D(filters, 3, activation="relu") for filters in (16, 32)]
    top = [layers.Flatten(), layers.Dense(64, activation="relu"), layers.Dense(10)]
    return tf.keras.Sequential([layers.Input((8, 8, 1)), *convolutions, *top])


def main(arguments: Sequence[str] | None = None, extra: Sequence[object] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--result", type=Path, help="directory for a JSON file from every rank")
    options = parser.parse_args(arguments)
    hvd.init()
    tf.keras.utils.set_random_seed(1)
    tf.config.experimental.enable_op_determinism()
    tf.config.threading.set_intra_op_parallelism_threads(1)  # several ranks share the CPUs
    tf.config.threading.set_inter_op_parallelism_threads(2)

    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8, 1).astype(np.float32) / 16
    train, test, train_labels, test_labels = train_test_split(
        images, labels, train_size=1400, random_state=1
    )
    model = small_cnn()
    model.compile(
        optimizer=hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.003)),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    computed: list[int] = []  # batches that this process computed
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.FaultTolerance(),  # new
        tf.keras.callbacks.LambdaCallback(on_train_batch_end=lambda b, logs: computed.append(b)),
        *extra,
    ]
    model.fit(batches(train, train_labels), epochs=options.epochs, callbacks=callbacks, verbose=0)
    _, accuracy = model.evaluate(test, test_labels, verbose=0)
    weights = b"".join(np.ascontiguousarray(weight).tobytes() for weight in model.get_weights())
    result = {
        "rank": hvd.rank(),
        "incarnation": hvd.incarnation(),
        "steps": int(model.optimizer.iterations),
        "computed": len(computed),
        "accuracy": round(accuracy, 4),
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
    }
    print(json.dumps(result), flush=True)
    if options.result:
        (options.result / f"rank-{hvd.rank()}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
