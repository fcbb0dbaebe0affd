"""What an Estimator can do without a model directory, and what it says it cannot.

`patched` leaves it to the Estimator, `config` takes `hvd.estimator.run_config`.
"""

import sys
from typing import Any

import numpy as np
import tensorflow as tf

import hvd_ft.tensorflow as hvd

v1 = tf.compat.v1
v1.logging.set_verbosity(v1.logging.ERROR)
X = np.arange(60, dtype=np.float32).reshape(20, 3) / 50
Y = X.sum(axis=1, keepdims=True)


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    output = v1.layers.dense(features["x"], 1)
    if mode == "infer":
        exported = {"serving_default": tf.estimator.export.PredictOutput({"y": output})}
        return tf.estimator.EstimatorSpec(mode, predictions={"y": output}, export_outputs=exported)
    loss = tf.reduce_mean(tf.square(output - labels))
    op = v1.train.AdamOptimizer(0.01).minimize(loss, v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=op)


def pairs() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(4)


def data() -> tf.data.Dataset:
    return pairs().map(lambda x, y: ({"x": x}, y))


def receiver() -> Any:
    given = {"x": v1.placeholder(tf.float32, [None, 3])}
    return tf.estimator.export.ServingInputReceiver(given, given)


class Listener(v1.train.CheckpointSaverListener):
    def __init__(self) -> None:
        self.saved: list[int] = []

    def after_save(self, session: Any, global_step_value: int) -> None:
        self.saved.append(int(global_step_value))


def config(**args: Any) -> Any:
    plain = tf.estimator.RunConfig(**args)
    return plain if sys.argv[1] == "patched" else hvd.estimator.run_config(plain)


hvd.init()
# Checkpoints off: the variables live on all the same.
kept = config(save_checkpoints_secs=None)
trained, listener = tf.estimator.Estimator(model_fn, config=kept), Listener()
trained.train(data, steps=3, saving_listeners=[listener])
trained.train(data, steps=2, saving_listeners=[listener])
assert listener.saved == [0, 3, 3, 5], listener.saved
assert trained.evaluate(data)["global_step"] == 5

# A directory of the user's own.
exported = tf.saved_model.load(trained.export_saved_model(sys.argv[2], receiver).decode())
served = exported.signatures["serving_default"](tf.constant(X[:1]))["y"]
[first, *_] = trained.predict(data)
np.testing.assert_allclose(served[0], first["y"], rtol=1e-5)

# An exporter and early stopping have none.
exporter = tf.estimator.FinalExporter("final", receiver)
try:
    tf.estimator.train_and_evaluate(
        trained,
        tf.estimator.TrainSpec(data, max_steps=8),
        tf.estimator.EvalSpec(data, exporters=[exporter]),
    )
except ValueError as error:
    print(error)
early = tf.estimator.Estimator(model_fn, config=config())
stop = tf.estimator.experimental.stop_if_no_decrease_hook(
    early, "loss", 9, run_every_secs=None, run_every_steps=1
)
try:
    early.train(data, [stop])
except ValueError as error:
    print(error)

# One Estimator begins where another one is.
other = tf.estimator.Estimator(model_fn, config=config(), warm_start_from=trained.model_dir)
other.train(data, steps=1)

layers = [tf.keras.layers.Dense(1, input_shape=(3,), name="only")]
model = tf.keras.Sequential(layers)
model.compile("adam", "mse")
model.set_weights([np.full([3, 1], 2.0), np.zeros([1])])
of_keras = tf.keras.estimator.model_to_estimator(model, config=config())
of_keras.train(pairs, steps=1)
[kernel] = [n for n in of_keras.get_variable_names() if "kernel/.ATTR" in n and "OPT" not in n]
np.testing.assert_allclose(of_keras.get_variable_value(kernel), np.full([3, 1], 2.0), atol=0.01)

# With a directory it is what it was.
stock = tf.estimator.Estimator(model_fn, model_dir=sys.argv[3])
stock.train(data, steps=1)
stock.evaluate(data)
