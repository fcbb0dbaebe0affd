"""Trains a tf.estimator on scikit-learn's handwritten digits, and leaves no file behind.

Run it with `hvdft run -np 2 python examples/digits_estimator.py`; without an agent it is an
ordinary Horovod script. The lines that stock Horovod does not have are marked with `# new`.
"""

import argparse
import hashlib
import json
import math
from typing import Any

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import hvd_ft.tensorflow as hvd  # new: was horovod.tensorflow

v1 = tf.compat.v1
BATCH = 20


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    hidden = v1.layers.dense(features["x"], 64, activation=tf.nn.relu)
    hidden = v1.layers.dropout(hidden, 0.1, training=mode == tf.estimator.ModeKeys.TRAIN)
    logits = v1.layers.dense(hidden, 10)
    loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
    optimizer = hvd.DistributedOptimizer(v1.train.AdamOptimizer(0.003))
    return tf.estimator.EstimatorSpec(
        mode,
        loss=loss,
        train_op=optimizer.minimize(loss, v1.train.get_global_step()),
        eval_metric_ops={"accuracy": v1.metrics.accuracy(labels, tf.argmax(logits, axis=1))},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--model-dir", help="for rank 0's checkpoints; none are written without it")
    parser.add_argument("--csv", help="file for the time of each epoch")
    options = parser.parse_args()

    hvd.init()
    tf.keras.utils.set_random_seed(1)
    tf.config.experimental.enable_op_determinism()
    digits = load_digits()
    data = train_test_split(digits.data.astype(np.float32) / 16, digits.target, random_state=1)
    train_x, test_x, train_y, test_y = data

    def train_data() -> tf.data.Dataset:
        own = tf.data.Dataset.from_tensor_slices(({"x": train_x}, train_y))
        own = own.shard(hvd.size(), hvd.rank()).shuffle(len(train_x), seed=1)
        return own.repeat().batch(BATCH)

    def test_data() -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(({"x": test_x}, test_y)).batch(BATCH)

    config = tf.estimator.RunConfig(options.model_dir, tf_random_seed=1)
    config = hvd.estimator.run_config(config)  # new: rank 0 alone writes, if it is to write at all
    estimator = tf.estimator.Estimator(model_fn, config=config)
    hooks = [
        hvd.BroadcastGlobalVariablesHook(0),
        hvd.estimator.FaultTolerance(),  # new: training continues when this process is restarted
        hvd.estimator.EpochTiming(len(train_x), BATCH, options.csv),  # new: epochs per second
    ]
    steps = math.ceil(options.epochs * len(train_x) / (BATCH * hvd.size()))
    estimator.train(train_data, hooks, max_steps=steps)
    metrics = {name: float(value) for name, value in estimator.evaluate(test_data).items()}
    names = estimator.get_variable_names()
    weights = b"".join(estimator.get_variable_value(name).tobytes() for name in names)
    result = {"rank": hvd.rank(), "incarnation": hvd.incarnation()} | metrics
    result["weights_sha256"] = hashlib.sha256(weights).hexdigest()
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
