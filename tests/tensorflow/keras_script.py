"""What the tests of fit train: a model that notes its batches, and data of many kinds."""

import gc
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from fake_worker import FakeWorker, Killed

from hvd_ft.tensorflow import averages, draws, made_variables
from hvd_ft.tensorflow.keras_api import is_a_variable, plain

keras = tf.keras
_KEYS = itertools.count()  # a process has one of its own
SAMPLES, BATCH, EPOCHS = 28, 4, 3
STEPS = SAMPLES // BATCH
X = np.arange(SAMPLES * 3, dtype=np.float32).reshape(SAMPLES, 3) / 50
Y = np.sin(X.sum(axis=1, keepdims=True))


class Job(keras.callbacks.Callback):
    """Does a collective a step and an epoch; dies after the given step."""

    def __init__(self, worker: FakeWorker, kill_after: int | None) -> None:
        super().__init__()
        self._worker = worker
        self._kill_after = kill_after
        self.steps = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps += 1
        loss = float(logs["loss"])
        self._worker.collective(f"step {self.steps} {loss!r}")
        if self.steps == self._kill_after:
            raise Killed

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._worker.collective(f"epoch {epoch} {sorted(logs.items())}")


class Recording(keras.Sequential):
    """Notes the batches it is trained with."""

    seen: list[list[float]]

    def train_step(self, data: Any) -> Any:
        seen = self.seen

        def note(x: np.ndarray) -> np.int64:
            seen.append(x[:, 0].tolist())
            return np.int64(0)

        with tf.control_dependencies([tf.numpy_function(note, [data[0]], tf.int64)]):
            return super().train_step(data)


def make_model(layers: Sequence[Any] = (), **compile_args: Any) -> keras.Model:
    inner = layers or [keras.layers.Dense(4), keras.layers.BatchNormalization()]
    model = Recording([*inner, keras.layers.Dense(1)])
    vars(model)["seen"] = []  # not of Keras, which would keep an eye on it
    options: dict[str, Any] = {"optimizer": keras.optimizers.Adam(0.05)} | compile_args
    model.compile(loss="mse", metrics=["mae"], **options)
    return model


def everything(*roots: Any) -> list[np.ndarray]:
    """What training has made of models and optimizers: all that TensorFlow itself finds in them.

    It is not what we take snapshots of: whoever forgets a variable there has it found here.
    """
    optimizers = [getattr(root, "optimizer", None) for root in roots]
    found: dict[int, Any] = {}
    for root in filter(None, [*roots, *optimizers]):
        items = tf.train.TrackableView(root).descendants()
        found |= {id(item): plain(item) for item in items if is_a_variable(item)}
        helper = getattr(root, "_agg_helper", None)
        sums = [] if helper is None else helper.locally_aggregated_grads.values()
        found |= {id(item): item for item in sums}
    return [item.numpy() for item in found.values()]


def assert_same(left: Sequence[np.ndarray], right: Sequence[np.ndarray]) -> None:
    """Compares variables, bit for bit."""
    assert len(left) == len(right)
    for one, other in zip(left, right, strict=True):
        np.testing.assert_array_equal(one, other)


def draw_of_all() -> float:
    """Draws from each kind of generator that there is: a sum, other ones for other states."""
    eager = tf.random.uniform([]) + tf.random.uniform([], seed=5) + _traced_draw()
    generator = tf.random.get_global_generator().uniform([])
    return random.random() + float(np.random.rand()) + float(eager) + float(generator)


@tf.function
def _traced_draw() -> tf.Tensor:
    return tf.nn.dropout(tf.ones([16]), 0.5)[3] + tf.random.normal([])


def fresh_process() -> None:
    gc.collect()  # a killed fit's threads go with its iterator: one that reads on would draw, too
    keras.backend.clear_session()
    made_variables.restart()
    averages.restart()
    draws.keep_draws()
    draws.restore_draws([next(_KEYS), 0])
    keras.utils.set_random_seed(7)
    tf.random.set_global_generator(tf.random.Generator.from_seed(7))


def end_process() -> None:
    keras.backend.clear_session()
    # The dataset of a killed fit is in a reference cycle. When tf.data ends its tuning thread, that
    # thread may miss it, and sleeps again for as long as it has existed, up to a minute.
    gc.collect()


def shuffled() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(SAMPLES, seed=3)


def with_generator() -> tf.data.Dataset:
    generator = tf.random.Generator.from_seed(5)
    noisy = tf.data.Dataset.from_tensor_slices((X, Y)).map(
        lambda x, y: (x + generator.uniform([3]), y)
    )
    return noisy.batch(BATCH)


def augmented() -> tf.data.Dataset:
    return shuffled().map(lambda x, y: (x + tf.random.uniform([3]), y)).batch(BATCH).prefetch(2)


class Reordered(keras.utils.Sequence):
    """Batches in another order in each epoch, with noise on them."""

    def __init__(self) -> None:
        super().__init__()
        self._order = np.arange(SAMPLES)
        self.on_epoch_end()

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, number: int) -> Any:
        rows = self._order[number * BATCH : (number + 1) * BATCH]
        return X[rows] + np.random.normal(0, 0.1, (BATCH, 3)), Y[rows]

    def on_epoch_end(self) -> None:
        np.random.shuffle(self._order)


def images(**options: Any) -> dict[str, Any]:
    generator = keras.preprocessing.image.ImageDataGenerator(
        horizontal_flip=True, width_shift_range=1, data_format="channels_last"
    )
    pictures = np.repeat(X[:, None, :, None], 2, axis=1)
    return {"x": generator.flow(pictures, Y, batch_size=BATCH, **options)}


# Each gives fit's arguments.
DATA: dict[str, Callable[[], dict[str, Any]]] = {
    "reshuffle": lambda: {"x": shuffled().batch(BATCH)},
    "augmented": lambda: {"x": augmented()},
    "repeat": lambda: {"x": shuffled().repeat().batch(BATCH), "steps_per_epoch": STEPS - 2},
    "repeat_in_epoch": lambda: {"x": shuffled().repeat(2).batch(2 * BATCH)},
    "cache": lambda: {"x": shuffled().cache().batch(BATCH)},
    "generator": lambda: {"x": with_generator()},
    "unknown_length": lambda: {"x": shuffled().filter(lambda x, y: True).batch(BATCH)},
    "sequence": lambda: {"x": Reordered()},
    "arrays": lambda: {"x": X, "y": Y, "batch_size": BATCH},
}
