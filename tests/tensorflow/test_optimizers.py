"""Whatever the optimizer: what is kept of it suffices to go on in another process."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow", reason="Horovod is not built")

from hvd_ft.tensorflow.keras_api import KERAS_3  # noqa: E402
from hvd_ft.tensorflow.variables import (  # noqa: E402
    build_optimizer,
    optimizer_variables,
    read,
    restore,
    unique,
)

KERAS, V1 = tf.keras.optimizers, tf.compat.v1.train
pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated")


# With which an optimizer has all the variables that it can have.
OPTIONS = {
    "Adam": {"amsgrad": True},
    "RMSprop": {"centered": True, "momentum": 0.9},
    "SGD": {"momentum": 0.9, "nesterov": True},
}

VARIABLE = tf.keras.Variable if KERAS_3 else tf.Variable
AROUND_OTHERS = [KERAS.LossScaleOptimizer, KERAS.MultiOptimizer] if KERAS_3 else []


def public(module: Any, *without: type) -> list[type]:
    """The optimizers that a module of TensorFlow's has, each once."""
    values = [getattr(module, name) for name in dir(module)]
    found = {cls for cls in values if isinstance(cls, type) and hasattr(cls, "apply_gradients")}
    return sorted(found - set(without), key=lambda cls: cls.__name__)


def train(optimizer: Any, weights: tf.Variable, steps: range) -> None:
    for step in steps:
        gradient = tf.sin(weights + step) + 0.1
        optimizer.apply_gradients([(gradient, weights)])


@pytest.mark.parametrize("module", [KERAS] if KERAS_3 else [KERAS, KERAS.legacy])
def test_every_optimizer_of_keras(module: Any) -> None:
    found = public(module, module.Optimizer, *AROUND_OTHERS)
    assert len(found) >= 8, found
    for kind in found:
        options = OPTIONS.get(kind.__name__, {})
        first, weights = kind(learning_rate=0.05, **options), VARIABLE(np.ones([2, 3], np.float32))
        train(first, weights, range(3))
        kept = read(unique([weights], optimizer_variables(first)))
        kept = {name: array.copy() for name, array in kept.items()}
        train(first, weights, range(3, 6))
        # The other process.
        second, others = kind(learning_rate=0.05, **options), VARIABLE(np.zeros([2, 3], np.float32))
        build_optimizer(second, [others])
        restore(unique([others], optimizer_variables(second)), kept)
        train(second, others, range(3, 6))
        np.testing.assert_array_equal(weights, others, kind.__name__)


SESSIONS: dict[str, Callable[[], Any]] = {
    "GradientDescent": lambda: V1.GradientDescentOptimizer(0.05),
    "Momentum": lambda: V1.MomentumOptimizer(0.05, 0.9, use_nesterov=True),
    "Adam": lambda: V1.AdamOptimizer(0.05),
    "RMSProp": lambda: V1.RMSPropOptimizer(0.05, momentum=0.9, centered=True),
    "Adagrad": lambda: V1.AdagradOptimizer(0.05),
    "AdagradDA": lambda: V1.AdagradDAOptimizer(0.05, V1.get_or_create_global_step()),
    "Adadelta": lambda: V1.AdadeltaOptimizer(0.05),
    "Ftrl": lambda: V1.FtrlOptimizer(0.05),
    "ProximalAdagrad": lambda: V1.ProximalAdagradOptimizer(0.05),
    "ProximalGradientDescent": lambda: V1.ProximalGradientDescentOptimizer(0.05),
}


@pytest.mark.parametrize("resource", [True, False], ids=["resources", "references"])
def test_every_optimizer_of_sessions(resource: bool) -> None:
    pytest.importorskip("tensorflow_estimator")
    from hvd_ft.tensorflow.estimator.graph import SessionVariables

    found = public(V1, V1.Optimizer, V1.SyncReplicasOptimizer)  # that one is for parameter servers
    assert {cls.__name__.removesuffix("Optimizer") for cls in found} == set(SESSIONS)
    for name, make in SESSIONS.items():
        with tf.Graph().as_default() as graph:
            weights = tf.compat.v1.get_variable("weights", [2, 3], use_resource=resource)
            loss = tf.reduce_sum(tf.cos(weights)) + tf.reduce_sum(weights)
            step = make().minimize(loss, V1.get_or_create_global_step())
            variables, initialise = (
                SessionVariables(graph),
                tf.compat.v1.global_variables_initializer(),
            )
            with tf.compat.v1.Session() as first, tf.compat.v1.Session() as second:
                first.run(initialise)
                for _ in range(3):
                    first.run(step)
                variables.restore(second, variables.read(first))
                for _ in range(3):
                    first.run(step)
                    second.run(step)
                np.testing.assert_array_equal(*(s.run(weights) for s in (first, second)), name)
