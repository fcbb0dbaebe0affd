"""What copying beside training rests on: memory that was read keeps its values."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow", reason="Horovod is not built")

from hvd_ft.tensorflow.keras_api import KERAS_3  # noqa: E402
from hvd_ft.tensorflow.variables import optimizer_variables, read  # noqa: E402

optimizers = tf.keras.optimizers
SHAPE = (200, 100)


@pytest.fixture(autouse=True)
def _cleared() -> Iterator[None]:
    yield
    tf.keras.backend.clear_session()


def variable() -> tf.Variable:
    return tf.Variable(np.random.default_rng(1).random(SHAPE, np.float32))


def check_held(variables: list[tf.Variable], update: Callable[[], Any]) -> None:
    """All `variables` change by `update`, but not what was read of them before."""
    held = read(variables)
    before = {name: array.copy() for name, array in held.items()}
    assert all(array.shape == SHAPE for array in held.values())
    update()
    for (name, array), now in zip(held.items(), read(variables).values(), strict=True):
        np.testing.assert_array_equal(array, before[name])
        assert (now != array).any(), name


MAKE: dict[str, Callable[[], Any]] = {
    "Adam": lambda: optimizers.Adam(0.1),
    "SGD": lambda: optimizers.SGD(0.1, momentum=0.9),
    "RMSprop": lambda: optimizers.RMSprop(0.1),
}
if not KERAS_3:
    MAKE |= {
        "legacy.Adam": lambda: optimizers.legacy.Adam(0.1),  # one fused op, in place
        "legacy.SGD": lambda: optimizers.legacy.SGD(0.1, momentum=0.9),
        "legacy.Ftrl": lambda: optimizers.legacy.Ftrl(0.1),
    }


@pytest.mark.parametrize("how", ["eager", "function", "sparse"])
@pytest.mark.parametrize("kind", MAKE)
def test_optimizers(kind: str, how: str) -> None:
    optimizer, weights = MAKE[kind](), variable()
    gradient: Any = tf.ones(SHAPE)
    if how == "sparse":
        gradient = tf.IndexedSlices(gradient[:3], tf.constant([1, 5, 7]), tf.constant(SHAPE))

    def update() -> None:
        optimizer.apply_gradients([(gradient, weights)])

    if how == "function":
        update = tf.function(update)
    update()  # makes the slots
    slots = [slot for slot in optimizer_variables(optimizer) if slot.shape == SHAPE]
    assert slots
    check_held([weights, *slots], update)


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v.assign_add(tf.ones(SHAPE)),
        lambda v: v.assign(tf.ones(SHAPE)),
        lambda v: v.scatter_nd_update([[0, 0]], [5.0]),
        lambda v: v[:10].assign(tf.ones((10, SHAPE[1]))),
        tf.function(lambda v: v.assign_add(tf.ones(SHAPE))),
        tf.function(lambda v: v.assign_add(tf.ones(SHAPE)), jit_compile=True),
    ],
    ids=["assign_add", "assign", "scatter", "slice", "function", "xla"],
)
def test_variables(change: Callable[[tf.Variable], Any]) -> None:
    own = variable()
    check_held([own], lambda: change(own))


def test_reading_copies_nothing() -> None:
    own = variable()
    [one], [other] = read([own]).values(), read([own]).values()
    assert np.shares_memory(one, other)
