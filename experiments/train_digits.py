"""One training of many: stock Horovod, Horovod Elastic and hvd_ft train the same model alike.

A small CNN on scikit-learn's handwritten digits, in a loop of its own. What differs between the
sides is only how they keep the state and how they go on after a death. It writes down when each
step was done, and dies at the end of steps when ordered to.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

BATCH = 14  # images of a rank


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", choices=["stock", "elastic", "ft"], required=True)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--notes", type=Path, required=True, help="folder; a file of each process")
    parser.add_argument("--die", action="append", default=[], metavar="RANK:STEP",
                        help="once, by SIGKILL at the end of that step")  # fmt: skip
    parser.add_argument("--step-seconds", type=float, default=0.0,
                        help="that a step waits, as for an accelerator")  # fmt: skip
    parser.add_argument("--checkpoint", type=Path, help="file, of the side stock")
    parser.add_argument("--checkpoint-steps", type=int, default=50)
    return parser.parse_args()


class Log:
    """Of one process: its start, each step that it has done, its death; CLOCK_MONOTONIC, ns."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = (folder / f"{os.getpid()}").open("a", buffering=1)
        self.write("start", 0)

    def write(self, word: str, number: float) -> None:
        self._file.write(f"{word} {number} {time.monotonic_ns()}\n")

    def dies_now(self, rank: int, step: int) -> None:
        """SIGKILL for this process, unless a process died here before."""
        try:
            (self._folder / f"died-{rank}-{step}").touch(exist_ok=False)
        except FileExistsError:
            return
        self.write("killed", step)
        os.kill(os.getpid(), signal.SIGKILL)


options = parse()
log = Log(options.notes)  # before the imports, which take seconds in which it may be killed too

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402
from sklearn.model_selection import train_test_split  # noqa: E402

if options.side == "elastic":  # an environment without hvd_ft: see elastic.py
    import horovod.tensorflow as hvd
else:
    import hvd_ft.tensorflow as hvd  # without an agent, stock Horovod


class Training:
    """The model and its data; a step is a function of its number, of the rank and their count."""

    def __init__(self) -> None:
        tf.keras.utils.set_random_seed(1)
        tf.config.experimental.enable_op_determinism()
        tf.config.threading.set_intra_op_parallelism_threads(1)  # several ranks share the CPUs
        tf.config.threading.set_inter_op_parallelism_threads(2)
        images, labels = load_digits(return_X_y=True)
        images = images.reshape(-1, 8, 8, 1).astype(np.float32) / 16
        parts = train_test_split(images, labels, train_size=1400, random_state=1)
        self._images, self._test_images, self._labels, self._test_labels = parts
        layers = tf.keras.layers
        convolutions = [layers.Conv2D(filters, 3, activation="relu") for filters in (16, 32)]
        top = [layers.Flatten(), layers.Dense(64, activation="relu"), layers.Dense(10)]
        self.model = tf.keras.Sequential([layers.Input((8, 8, 1)), *convolutions, *top])
        self.optimizer = tf.keras.optimizers.Adam(0.003)
        self.optimizer.build(self.model.trainable_variables)
        self._loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self._steps_of_epoch = len(self._images) // (BATCH * hvd.size())
        self.steps = options.epochs * self._steps_of_epoch

    @tf.function
    def _apply(self, images: tf.Tensor, labels: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = self._loss(labels, self.model(images, training=True))
        tape = hvd.DistributedGradientTape(tape)
        variables = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    def step(self, number: int) -> None:
        """Does a step, the first of which is 0."""
        epoch, at = divmod(number, self._steps_of_epoch)
        order = np.random.default_rng(epoch).permutation(len(self._images))
        rows = order[(at * hvd.size() + hvd.rank()) * BATCH :][:BATCH]
        time.sleep(options.step_seconds)
        self._apply(tf.constant(self._images[rows]), tf.constant(self._labels[rows]))

    def done(self, steps: int) -> None:
        """Writes down that so many steps are done; dies if it is to."""
        log.write("step", steps)
        if f"{hvd.rank()}:{steps}" in options.die:
            log.dies_now(hvd.rank(), steps)

    @property
    def accuracy(self) -> float:
        scores = self.model(self._test_images)
        return float(np.mean(np.argmax(scores, axis=1) == self._test_labels))

    @property
    def variables(self) -> list[tf.Variable]:
        return [*self.model.variables, *self.optimizer.variables]


def with_ft(training: Training) -> None:
    """Nothing is lost; snapshots are taken as hvd_ft chooses."""
    state = hvd.State(training.model, training.optimizer)
    state.sync()
    while state.batch < training.steps:
        training.step(state.batch)
        state.batch += 1
        training.done(state.batch)
        state.commit()


def with_elastic(training: Training) -> None:
    """Commits after every step: nothing more than the step under way is lost."""
    state = hvd.elastic.TensorFlowKerasState(training.model, training.optimizer, batch=0)

    @hvd.elastic.run
    def train(state: hvd.elastic.TensorFlowKerasState) -> None:
        while state.batch < training.steps:
            training.step(state.batch)
            state.batch += 1
            training.done(state.batch)
            state.commit()

    train(state)


def with_checkpoints(training: Training) -> None:
    """Stock Horovod; rank 0 writes a checkpoint every so many steps, if it is to."""
    file, number = options.checkpoint, 0
    if file and file.exists():
        with np.load(file) as kept:
            number = int(kept["step"])
            for index, variable in enumerate(training.variables):
                variable.assign(kept[f"{index}"])
    hvd.broadcast_variables(training.variables, root_rank=0)
    while number < training.steps:
        training.step(number)
        number += 1
        training.done(number)
        if file and hvd.rank() == 0 and number % options.checkpoint_steps == 0:
            unfinished = file.with_suffix(".unfinished.npz")
            values = {f"{i}": each.numpy() for i, each in enumerate(training.variables)}
            np.savez(unfinished, step=number, **values)
            unfinished.replace(file)


WAYS: dict[str, Callable[[Training], None]] = {
    "stock": with_checkpoints,
    "elastic": with_elastic,
    "ft": with_ft,
}


def main() -> int:
    hvd.init()
    training = Training()
    WAYS[options.side](training)
    if hvd.rank() == 0:
        log.write("accuracy", round(training.accuracy, 4))
    return 0


if __name__ == "__main__":
    sys.exit(main())
