"""The worker of `hvdft bench training`: run with `python -m`, the same for every backend.

With a socket, its fit continues for another round whenever the driver asks. With a result
directory it fits once, so that a restarted process can resume by itself, and writes the duration.
"""

import argparse
import json
import os
import resource
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import hvd_ft.tensorflow.keras as hvd
from hvd_ft.system.channel import Channel
from hvd_ft.tools.bench import driver_requests

WARMUP_STEPS = 4  # TensorFlow traces and Horovod's buffers grow

_IMAGES = 512  # different batches; they are used repeatedly


def digits() -> tuple[tf.keras.Model, tuple[int, ...], int, Any]:
    """The model, image shape, batch size and optimizer of examples/digits_keras.py."""
    layers = tf.keras.layers
    convolutions = [layers.Conv2D(filters, 3, activation="relu") for filters in (16, 32)]
    top = [layers.Flatten(), layers.Dense(64, activation="relu"), layers.Dense(10)]
    model = tf.keras.Sequential([layers.Input((8, 8, 1)), *convolutions, *top])
    return model, (8, 8, 1), 14, tf.keras.optimizers.Adam(0.003)


def cnn() -> tuple[tf.keras.Model, tuple[int, ...], int, Any]:
    """A CNN of 24 million parameters, most of them in its first dense layer."""
    layers = tf.keras.layers
    body: list[Any] = []
    for filters in (32, 64, 128):
        body += [layers.Conv2D(filters, 3, padding="same", activation="relu"), layers.MaxPool2D()]
    top = [layers.Flatten(), *(layers.Dense(n, activation="relu") for n in (2560, 1024))]
    model = tf.keras.Sequential([layers.Input((64, 64, 3)), *body, *top, layers.Dense(100)])
    return model, (64, 64, 3), 32, tf.keras.optimizers.SGD(0.001, momentum=0.9)


def dense(width: int = 3535) -> tuple[tf.keras.Model, tuple[int, ...], int, Any]:
    """Two dense layers with 25 million parameters; their state has three times as many values.

    They compute little for each parameter, which is the hardest case for snapshots and the log.
    """
    layers = tf.keras.layers
    body = [layers.Dense(width, activation="relu") for _ in range(2)]
    model = tf.keras.Sequential([layers.Input((width,)), *body, layers.Dense(10)])
    return model, (width,), 32, tf.keras.optimizers.Adam(1e-4)


def dense100() -> tuple[tf.keras.Model, tuple[int, ...], int, Any]:
    """The same with 100 million parameters."""
    return dense(7070)


MODELS = {"digits": digits, "cnn": cnn, "dense": dense, "dense100": dense100}


class Training:
    """A model that can be trained for some steps repeatedly."""

    def __init__(self, model: str, snapshot_steps: int | None) -> None:
        tf.keras.utils.set_random_seed(1)  # the same weights on every rank
        self._model, shape, self._batch, optimizer = MODELS[model]()
        self._snapshot_steps = snapshot_steps
        self._model.compile(
            optimizer=hvd.DistributedOptimizer(optimizer),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        random = np.random.default_rng(hvd.rank())
        images = random.random((_IMAGES, *shape), np.float32)
        labels = random.integers(0, 10, _IMAGES)
        self._data = tf.data.Dataset.from_tensor_slices((images, labels))

    def warm_up(self) -> None:
        """Trains for a few steps, so that a fit after it does not trace."""
        self.fit(WARMUP_STEPS)

    def fit(self, steps: int, *callbacks: Any) -> float:
        """Trains for some steps; returns the seconds they took."""
        data = self._data.batch(self._batch, drop_remainder=True).repeat().take(steps)
        # The dataset's tuner sleeps, twice as long each time, in the only inter-op thread.
        options = tf.data.Options()
        options.autotune.enabled = False
        data = data.with_options(options)
        keep = hvd.callbacks.FaultTolerance(self._snapshot_steps)
        begin = time.perf_counter()
        self._model.fit(data, callbacks=[keep, *callbacks], verbose=0)
        return time.perf_counter() - begin

    def facts(self) -> dict[str, int]:
        """A rank's images in a step, and sizes in bytes; valid once a model was fitted."""
        return {
            "batch": self._batch,
            "gradient_bytes": _bytes(self._model.trainable_variables),
            "state_bytes": _bytes([*self._model.variables, *self._model.optimizer.variables]),
        }


class Rounds(tf.keras.callbacks.Callback):
    """Holds a fit before each round until the driver asks for it, and answers after it."""

    def __init__(self, channel: Channel, steps: int, training: Training) -> None:
        super().__init__()
        self._channel, self._steps, self._training = channel, steps, training
        self._requests = driver_requests.requests(channel, hvd.rank())
        self._begin = 0.0

    def await_request(self) -> bool:
        """Returns False when the driver has no more requests."""
        return next(self._requests, None) is not None

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if batch % self._steps == 0:
            if not self.await_request():
                raise SystemExit("the driver wants no more rounds")
            self._begin = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if (batch + 1) % self._steps == 0:
            seconds = time.perf_counter() - self._begin
            resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
            facts = {"resident_bytes": resident, **self._training.facts()}
            self._channel.send({"seconds": seconds, **facts})


class Death(tf.keras.callbacks.Callback):
    """Kills its process after a step of the fit, unless the process is a restarted one."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self._step = step

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch + 1 == self._step and hvd.incarnation() == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def _bytes(variables: list[tf.Variable]) -> int:
    return sum(int(np.prod(each.shape)) * each.dtype.size for each in variables)


def main() -> None:
    """Serves the driver until it has no more requests, or trains once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("socket", nargs="?")
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--snapshot-steps", type=int)
    parser.add_argument("--result", type=Path)
    parser.add_argument("--steps", type=int, required=True, help="of a round")
    parser.add_argument("--rounds", type=int, help="of the fit, if there is a socket")
    parser.add_argument("--die-rank", type=int)
    parser.add_argument("--die-step", type=int)
    options = parser.parse_args()
    channel = driver_requests.connect(options.socket) if options.socket else None
    tf.config.threading.set_intra_op_parallelism_threads(1)  # several ranks share the CPUs
    tf.config.threading.set_inter_op_parallelism_threads(1)
    hvd.init()
    training = Training(options.model, options.snapshot_steps)
    if channel:
        rounds = Rounds(channel, options.steps, training)
        training.fit(options.steps * options.rounds, rounds)
        rounds.await_request()  # the end
    else:
        training.warm_up()
        death = [Death(options.die_step)] if options.die_rank == hvd.rank() else []
        result = {"seconds": training.fit(options.steps, *death), **training.facts()}
        (options.result / f"rank-{hvd.rank()}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
