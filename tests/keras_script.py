"""What the tests of fit train: a model that notes its batches, and data of many kinds."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from fake_worker import FakeWorker

keras = tf.keras
SAMPLES, BATCH, EPOCHS = 28, 4, 3
STEPS = SAMPLES // BATCH
X = np.arange(SAMPLES * 3, dtype=np.float32).reshape(SAMPLES, 3) / 50
Y = np.sin(X.sum(axis=1, keepdims=True))


class Killed(Exception):
    """Stands for SIGKILL."""


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
    model.seen = []
    options: dict[str, Any] = {"optimizer": keras.optimizers.Adam(0.05)} | compile_args
    model.compile(loss="mse", metrics=["mae"], **options)
    return model


def fresh_process() -> None:
    keras.backend.clear_session()
    keras.utils.set_random_seed(7)


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


# Each gives fit's arguments.
DATA: dict[str, Callable[[], dict[str, Any]]] = {
    "reshuffle": lambda: {"x": shuffled().batch(BATCH)},
    "augmented": lambda: {"x": augmented()},
    "repeat": lambda: {"x": shuffled().repeat().batch(BATCH), "steps_per_epoch": STEPS - 2},
    "repeat_in_epoch": lambda: {"x": shuffled().repeat(2).batch(2 * BATCH)},
    "cache": lambda: {"x": shuffled().cache().batch(BATCH)},
    "generator": lambda: {"x": with_generator()},
    "unknown_length": lambda: {"x": shuffled().filter(lambda x, y: True).batch(BATCH)},
    "arrays": lambda: {"x": X, "y": Y, "batch_size": BATCH},
}
