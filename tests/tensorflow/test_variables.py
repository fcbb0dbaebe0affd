"""What is known of variables before ranks compare them."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
hvd = pytest.importorskip("horovod.tensorflow.keras", reason="Horovod is not built")

from hvd_ft.tensorflow.keras_api import KERAS_3  # noqa: E402
from hvd_ft.tensorflow.variables import (  # noqa: E402
    assign,
    fit_variables,
    kinds,
    own_variables,
    read,
)
from hvd_ft.worker.divergence_rule import Kind  # noqa: E402


def fitted() -> tf.keras.Model:
    frozen = tf.keras.layers.Dense(4, input_shape=[3], name="frozen")
    frozen.trainable = False
    layers = [
        frozen,
        tf.keras.layers.BatchNormalization(name="norm"),
        tf.keras.layers.Dropout(0.5),
        tf.keras.layers.Dense(1, name="last"),
    ]
    model = tf.keras.Sequential(layers)
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(), backward_passes_per_step=2)
    model.compile(optimizer, "mse", metrics=["mae"])
    model.fit(np.ones([4, 3]), np.ones([4, 1]), batch_size=2, verbose=0)
    return model


def test_weights_what_is_a_ranks_own_and_what_is_neither() -> None:
    hvd.init()
    model = fitted()
    variables = fit_variables(model)
    known = kinds(variables, model.weights, own_variables(model))
    names = list(read(variables))
    plain = {name: name.partition(":")[2].removeprefix("sequential/") for name in names}
    weights = [plain[name] for name in names if known.get(name) is Kind.WEIGHT]
    layers = ("frozen/kernel", "frozen/bias", "norm/gamma", "norm/beta", "last/kernel", "last/bias")
    assert sorted(weights) == sorted(f"{name}:0" for name in layers)
    own = [plain[name] for name in names if known.get(name) is Kind.OWN]
    ends = [name.rpartition("/")[2] for name in own]
    assert ends.count("total:0") == ends.count("count:0") == 2  # the loss and a metric
    assert own.count("Variable:0") == 5  # a sum for each weight that is trained, and their number
    others = [plain[name] for name in names if name not in known]
    assert {"norm/moving_mean:0", "norm/moving_variance:0"} <= set(others)
    assert [name for name in others if name.endswith("iteration:0")]
    slot = "adam/sequential_last_kernel_momentum" if KERAS_3 else "Adam/m/last/kernel"
    assert [name for name in others if slot in name]


def test_one_variable_is_set() -> None:
    variables = [tf.Variable([1.0, 2.0], name="a"), tf.Variable([1.0, 2.0], name="a")]
    assign(variables, list(read(variables))[1], np.array([3.0, 4.0], np.float32))
    assert [variable.numpy().tolist() for variable in variables] == [[1, 2], [3, 4]]
