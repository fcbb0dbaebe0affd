"""Trains, evaluates and predicts with an Estimator that has no model directory.

`plain` leaves it to the Estimator, `config` takes `hvd.estimator.run_config`; several are tried one
after the other. A mark in the system call trace stands before each; what comes before the first
(imports, Horovod's beginning) is not the Estimator's.
"""

import contextlib
import os
import sys
import tempfile
from typing import Any

import numpy as np
import tensorflow as tf

import hvd_ft.tensorflow as hvd

v1 = tf.compat.v1
X = np.arange(60, dtype=np.float32).reshape(20, 3) / 50


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    # From zero every step comes nearer to the ones looked for; a random start may be there already.
    output = v1.layers.dense(features["x"], 1, kernel_initializer="zeros")
    if mode == "infer":
        return tf.estimator.EstimatorSpec(mode, predictions={"y": output})
    loss = tf.reduce_mean(tf.square(output - labels))
    op = hvd.DistributedOptimizer(v1.train.AdamOptimizer(0.01)).minimize(
        loss, v1.train.get_global_step()
    )
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=op)


def data() -> tf.data.Dataset:
    pairs = tf.data.Dataset.from_tensor_slices(({"x": X}, X.sum(axis=1, keepdims=True)))
    return pairs.batch(4)


def try_all(way: str) -> None:
    config = hvd.estimator.run_config() if way == "config" else None
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"/MARK-{way}")
    trained = tf.estimator.Estimator(model_fn, config=config)
    hooks = [hvd.BroadcastGlobalVariablesHook(0), hvd.estimator.FaultTolerance(3)]
    trained.train(lambda: data().repeat(), hooks, steps=6)
    first = trained.evaluate(data)
    assert trained.evaluate(data) == first
    assert len(list(trained.predict(data))) == len(X)
    trained.train(lambda: data().repeat(), hooks, steps=6)
    second, _ = tf.estimator.train_and_evaluate(
        trained,
        tf.estimator.TrainSpec(lambda: data().repeat(), max_steps=20, hooks=hooks),
        tf.estimator.EvalSpec(data, steps=None, name="last"),
    )
    assert (first["global_step"], second["global_step"]) == (6, 20)
    assert second["loss"] < first["loss"]
    assert trained.get_variable_value("global_step") == 20
    assert "dense/kernel/Adam" in trained.get_variable_names()
    assert trained.latest_checkpoint().endswith("model.ckpt-20")
    sys.stdout.write(f"DONE {hvd.rank()} {way}\n")
    sys.stdout.flush()


def try_canned() -> None:
    """An Estimator of TensorFlow's own, whose model AutoGraph converts."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink("/MARK-canned")
    column = tf.feature_column.numeric_column("x", (3,))
    trained = tf.estimator.DNNLinearCombinedClassifier(
        linear_feature_columns=[column],
        dnn_feature_columns=[column],
        dnn_hidden_units=[4],
        dnn_optimizer=lambda: hvd.DistributedOptimizer(tf.keras.optimizers.legacy.Adagrad(0.01)),
        config=hvd.estimator.run_config(),
    )

    def labelled() -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(({"x": X}, (X[:, 0] > 0.5).astype(int))).batch(4)

    hooks = [hvd.BroadcastGlobalVariablesHook(0), hvd.estimator.FaultTolerance(3)]
    trained.train(lambda: labelled().repeat(), hooks, steps=8)
    assert trained.evaluate(labelled)["global_step"] == 8
    sys.stdout.write(f"DONE {hvd.rank()} canned\n")
    sys.stdout.flush()


v1.logging.set_verbosity(v1.logging.ERROR)
hvd.init()
tempfile.gettempdir()  # Python tries once whether it can write there
for word in sys.argv[1:]:
    try_canned() if word == "canned" else try_all(word)
with contextlib.suppress(FileNotFoundError):
    os.unlink("/MARK-end")
