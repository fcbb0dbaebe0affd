"""Variables that training changes and no model has end as if no process had died."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_worker import FakeArena, FakeWorker, Killed, incarnation

tf = pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow", reason="Horovod is not built")

from keras_script import Job, assert_same, end_process, everything, fresh_process  # noqa: E402

from hvd_ft.checkpointer.capture import Captured  # noqa: E402
from hvd_ft.checkpointer.completion import complete  # noqa: E402
from hvd_ft.checkpointer.cuts import Cut  # noqa: E402
from hvd_ft.checkpointer.origin import Origin  # noqa: E402
from hvd_ft.checkpointer.share import Began, write_share  # noqa: E402
from hvd_ft.native.checkpointer import Place  # noqa: E402
from hvd_ft.tensorflow import callbacks as hvd_callbacks  # noqa: E402
from hvd_ft.tensorflow import (  # noqa: E402
    held_variables,
    late_variables,
    made_variables,
    other_variables,
)
from hvd_ft.tensorflow import state as state_module  # noqa: E402
from hvd_ft.tensorflow.keras_api import KERAS_3, plain_all  # noqa: E402
from hvd_ft.tensorflow.state import State  # noqa: E402
from hvd_ft.worker import resumed, shared_contents  # noqa: E402

keras = tf.keras
pytestmark = [pytest.mark.job]  # they take as long as one
X = np.arange(60, dtype=np.float32).reshape(20, 3) / 50
Y = np.sin(X.sum(axis=1, keepdims=True))
EPOCHS, STEPS = 3, 5  # of 4 samples
Script = Callable[[FakeWorker, int | None], list[Any]]


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(state_module, "_broadcast", lambda variables, values: values)
    yield
    end_process()


def assert_recovers(script: Script, *kills: int) -> None:
    """Compares a script that dies again and again with one that does not.

    Args:
        script: is given its worker and after how many steps of this process it dies.
        kills: of the first process, the second one, …
    """
    with incarnation(FakeArena(), 0) as worker:
        expected = script(worker, None)
    arena = FakeArena()
    for number, after in enumerate(kills):
        with incarnation(arena, number) as worker, pytest.raises(Killed):
            script(worker, after)
    with incarnation(arena, len(kills)) as worker:
        found = script(worker, None)
    assert worker.jumps
    assert_same([np.asarray(value) for value in found], [np.asarray(value) for value in expected])


class Averaged(keras.Sequential):
    """Averages its weights in an object that Keras does not track; `beta` is the script's."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.compute_loss(x, y, predicted) * self.beta
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        self.ema.apply(plain_all(self.trainable_variables))
        return self.compute_metrics(x, y, predicted, None)


class Averages(keras.callbacks.Callback):
    """Averages weights in variables of its own, each attribute in another of the usual ways."""

    def __init__(self, beta: tf.Variable) -> None:
        super().__init__()
        self.beta = beta
        self.best, self.latest, self.object = None, {}, tf.train.ExponentialMovingAverage(0.5)
        self.seen = tf.keras.metrics.Mean()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        weights = plain_all(self.model.trainable_variables)
        if self.best is None:
            self.best = [tf.Variable(weight) for weight in weights], 3
        else:
            for own, weight in zip(self.best[0], weights, strict=True):
                own.assign(0.75 * own + 0.25 * weight)
        self.object.apply(weights)
        self.seen.update_state(logs["loss"])

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.beta.assign_add(0.25)
        if epoch == 1:
            self.latest["bias"] = tf.Variable(self.model.trainable_variables[-1] * 2)
        elif epoch > 1:
            self.latest["bias"].assign_add(self.model.trainable_variables[-1])

    def values(self) -> list[Any]:
        weights = self.model.trainable_variables
        averages = [self.object.average(weight) for weight in weights]
        return [*self.best[0], *self.latest.values(), *averages, *self.seen.variables]


def averaging(worker: FakeWorker, kill_after: int | None, **compile_args: Any) -> list[Any]:
    fresh_process()
    beta = tf.Variable(1.0, trainable=False, name="beta")
    model = Averaged([keras.layers.Dense(4), keras.layers.Dense(1)])
    model.ema, model.beta = tf.train.ExponentialMovingAverage(0.9), beta
    model.compile(keras.optimizers.SGD(0.05), "mse", metrics=["mae"], **compile_args)
    averages, job = Averages(beta), Job(worker, kill_after)
    fellows = [hvd_callbacks.FaultTolerance(2), averages, job]
    fit = {"batch_size": 4, "verbose": 0, "callbacks": fellows}
    model.fit(X, Y, epochs=2, **fit)
    told = model.fit(X, Y, epochs=EPOCHS, initial_epoch=2, **fit).history["loss"]
    shadows = [model.ema.average(weight) for weight in model.trainable_variables]
    return [*everything(model), *shadows, beta, *averages.values(), told]


@pytest.mark.shows
@pytest.mark.parametrize("way", ["traced", "eager", "several"])
def test_averages_of_a_fit_that_is_killed_twice(way: str) -> None:
    args = {"eager": {"run_eagerly": True}, "several": {"steps_per_execution": 2}}.get(way, {})
    script = lambda worker, kill_after: averaging(worker, kill_after, **args)  # noqa: E731
    assert_recovers(script, *((3, 5, 8) if way == "several" else (3, 4, 8)))


def write_checkpoint(arena: FakeArena, folder: Path) -> dict[str, Any]:
    """Writes one of what an arena has; returns what agents tell of it."""
    captured = {}
    for loop, found in arena.loops.items():
        assert found.snapshot is not None
        assert found.data is not None
        place = shared_contents.Place(found.snapshot.cut, found.position)
        held = shared_contents.contents(memoryview(found.data), [], place)
        captured[Cut(loop, found.snapshot.cut)] = {0: Captured(found.position, held)}
    origin, latest = Origin(folder, "job1", "job1", 5, Place(1, 1, 0, 0, 1), [0]), max(captured)
    began = Began.now()
    write_share(origin, latest, captured, ([], []), range(1), began=began, await_seconds=0.0)
    complete(origin, latest, [0])
    return {"path": str(origin.path(latest)), "run": "job1", "loops": list(arena.loops)}


@pytest.mark.parametrize("kills", [(7, 7, 9), (13, 13, 15)], ids=["first", "second"])
def test_averages_of_a_fit_that_goes_on_from_a_checkpoint_and_is_killed_twice(
    kills: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a job's first fit or its second one; then before the new job has a snapshot, and after."""
    with incarnation(FakeArena(), 0) as worker:
        expected = averaging(worker, None)
    arena = FakeArena()
    with incarnation(arena, 0) as worker, pytest.raises(Killed):
        averaging(worker, kills[0])
    told = write_checkpoint(arena, tmp_path)
    monkeypatch.setenv(resumed.VARIABLE, json.dumps(told))
    resumed.resumed.cache_clear()
    arena = FakeArena()
    for number, after in enumerate(kills[1:]):
        with incarnation(arena, number) as worker, pytest.raises(Killed):
            averaging(worker, after)
    with incarnation(arena, len(kills) - 1) as worker:
        found = averaging(worker, None)
    resumed.resumed.cache_clear()
    assert_same([np.asarray(value) for value in found], [np.asarray(value) for value in expected])


def metrics_of_batches(worker: FakeWorker, kill_at: int | None) -> list[Any]:
    """A loop around `train_on_batch`, whose metrics Keras makes in the first step."""
    fresh_process()
    model = keras.Sequential([keras.layers.Dense(1, input_shape=[3])])
    model.compile(keras.optimizers.SGD(0.05), "mse", metrics=["mae"])
    state = State(model, snapshot_steps=2, history=[])
    state.sync()
    done = 0
    while state.epoch < EPOCHS:
        while state.batch < STEPS:
            rows, first = slice(4 * state.batch, 4 * state.batch + 4), state.batch == 0
            told = model.train_on_batch(X[rows], Y[rows], reset_metrics=first)
            worker.collective(f"{state.epoch} {state.batch} {told[0]!r}")
            state.batch += 1
            state.commit()
            if (done := done + 1) == kill_at:
                raise Killed
        state.history = [*state.history, *map(float, told)]
        state.epoch, state.batch = state.epoch + 1, 0
    return [*everything(model), state.history]


def epochs_of_batches(worker: FakeWorker, kill_at: int | None) -> list[Any]:
    """Two loops through `batches`, with averages, an epoch's metric and a generator of the data's.

    Between the loops, and after them, the script draws random numbers.
    """
    fresh_process()
    weight, ema = tf.Variable([1.0, 2.0]), tf.train.ExponentialMovingAverage(0.9)
    generator = tf.random.Generator.from_seed(3)
    data = tf.data.Dataset.range(STEPS).map(
        lambda x: tf.cast(x, tf.float32) + generator.uniform([])
    )
    told, done = [], 0

    @tf.function
    def step(x: tf.Tensor) -> None:
        weight.assign_add(x * tf.nn.dropout([1.0, 3.0], 0.5))
        ema.apply([weight])

    for loop in range(2):
        state = State(variables=[weight], snapshot_steps=2, sums=[])
        state.sync()
        while state.epoch < 2:
            mean = tf.keras.metrics.Mean()
            for x in state.batches(data):
                step(x)
                mean.update_state(weight)
                worker.collective(f"{loop} {state.epoch} {state.batch} {weight.numpy()!r}")
                if (done := done + 1) == kill_at:
                    raise Killed
            checked = tf.keras.metrics.Mean()  # a new one in each epoch: none of an earlier process
            checked.update_state(weight)
            state.sums = [*state.sums, float(mean.result()), float(checked.result())]
        state.finish()
        told += [*state.sums, np.random.rand(), float(tf.random.uniform([]))]
        worker.collective(f"{loop} is over")
        if kill_at == -loop:
            raise Killed
    ema.apply([weight])
    return [weight, ema.average(weight), told]


@pytest.mark.skipif(KERAS_3, reason="Keras 3 resets metrics before each batch")
@pytest.mark.shows
@pytest.mark.parametrize("kills", [(3, 2), (7, 7), (8, 6)])
def test_metrics_of_train_on_batch(kills: tuple[int, ...]) -> None:
    assert_recovers(metrics_of_batches, *kills)


@pytest.mark.shows
@pytest.mark.parametrize(
    "kills", [(13, -1, -1), (3, 2), (8, 5), (13, 4), (0, 0), (-1, -1)], ids=str
)
def test_averages_and_metrics_of_loops(kills: tuple[int, ...]) -> None:
    """Killed in the first loop, in its second epoch, in the second loop, and after each."""
    assert_recovers(epochs_of_batches, *kills)


def steps_of(state: State, by_batches: bool) -> Iterator[None]:
    """An epoch's steps, in either way to write a loop."""
    if by_batches:
        yield from (None for _ in state.batches(tf.data.Dataset.range(STEPS)))
        return
    while state.batch < STEPS:
        yield
        state.batch += 1
        state.commit()
    state.epoch, state.batch = state.epoch + 1, 0


def late_in_a_loop(worker: FakeWorker, kill_at: int | None, by_batches: bool) -> list[Any]:
    """Makes variables in the middle of a loop: for a step, for an epoch, and for the rest of it."""
    fresh_process()
    weight, ema, counter, done = tf.Variable(1.0), tf.train.ExponentialMovingAverage(0.9), None, 0
    state = State(variables=[weight], snapshot_steps=2)
    state.sync()
    total = tf.Variable(0.0) if by_batches else weight  # there when the loop is entered
    while state.epoch < 2:
        mean = tf.keras.metrics.Mean() if by_batches else total
        for _ in steps_of(state, by_batches):
            if counter is None and state.batch == STEPS - 1:
                counter = tf.Variable(0, name="counter")
            if counter is not None:
                counter.assign_add(1)
            of_step = tf.Variable(2.0)
            weight.assign_add(of_step + 1.0)
            ema.apply([weight])
            if by_batches:
                total.assign_add(weight)
                mean.update_state(weight)
            worker.collective(f"{state.epoch} {state.batch} {weight.numpy()!r}")
            if (done := done + 1) == kill_at:
                raise Killed
        checked = tf.keras.metrics.Mean()
        checked.update_state(weight)
    return [weight, ema.average(weight), total, mean.result() if by_batches else mean]


@pytest.mark.parametrize("by_batches", [True, False], ids=["batches", "commits"])
def test_what_a_script_makes_in_the_middle_of_a_loop_is_named_once(
    by_batches: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    late_variables._say_it_is_late.cache_clear()
    with incarnation(FakeArena(), 0) as worker:
        late_in_a_loop(worker, None, by_batches)
    lines = [line for line in capfd.readouterr().err.splitlines() if "in the middle of" in line]
    assert len(lines) == 1, lines
    assert "hvdft: the variable counter:0 (test_other_variables.py:" in lines[0]
    assert lines[0].endswith("make it before the loop")
    with incarnation(FakeArena(), 0) as worker:
        (epochs_of_batches if by_batches else metrics_of_batches)(worker, None)
    assert "in the middle of" not in capfd.readouterr().err, "there is nothing of the kind"
    # All the others are right, and no restarted process says it again.
    late_variables._say_it_is_late.cache_clear()
    assert_recovers(lambda worker, kill: late_in_a_loop(worker, kill, by_batches), 5, 4)
    assert capfd.readouterr().err.count("counter:0") == 1


class Late(keras.callbacks.Callback):
    """Makes in training what a restarted process cannot be given."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.late = getattr(self, "late", None) or tf.keras.metrics.Mean()
        self.text = getattr(self, "text", None) or tf.Variable("")
        self.text.assign(self.text + "x")


class Counting(keras.Sequential):
    def train_step(self, data: Any) -> Any:
        self.table.insert(tf.constant([1], tf.int64), tf.constant([2], tf.int64))
        return super().train_step(data)


@pytest.mark.shows
def test_what_cannot_be_kept_is_named_once(capfd: pytest.CaptureFixture[str]) -> None:
    fresh_process()
    for name in ("_say_it_is_made_late", "_say_it_cannot_be_kept"):
        getattr(held_variables, name, getattr(other_variables, name, None)).cache_clear()
    model = Counting([keras.layers.Dense(1)])
    model.table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)
    model.compile("sgd", "mse")
    with incarnation(FakeArena(), 0):
        fellows = [hvd_callbacks.FaultTolerance(1), Late()]
        model.fit(X, Y, batch_size=4, verbose=0, callbacks=fellows)
    told = capfd.readouterr().err
    assert told.count("Late.late, a Mean, is made in training") == 1
    assert told.count("the variable Variable:0 changes in training and contains texts") == 1
    assert told.count("the training step changes a lookup table") == 1


def test_what_data_draws_from_is_left_to_the_data() -> None:
    """As its draws are repeated; a variable that data only reads is not."""
    fresh_process()
    drawn, read = tf.random.Generator.from_seed(1), tf.Variable(2.0)
    tf.data.Dataset.range(3).map(lambda x: drawn.uniform([]) * read)
    of_data = made_variables.made.of_data()
    assert made_variables.made.identity(drawn.state) in of_data
    assert made_variables.made.identity(read) not in of_data


def test_what_nothing_has_changed_is_not_kept() -> None:
    fresh_process()
    teacher, counter = tf.Variable(np.ones([999, 9], np.float32)), tf.Variable(1)
    with incarnation(FakeArena(), 0):
        state = State(variables=[tf.Variable(0.0)])
        state.sync()
        counter.assign_add(1)
        kept = state._contents()[1]["others"]["contents"]
        assert [content.tolist() for content in kept.values()] == [2]
        teacher.assign_add(teacher)
        assert len(state._contents()[1]["others"]["contents"]) == 2
        counter.assign(1)
        assert len(state._contents()[1]["others"]["contents"]) == 2, "as before, but it has changed"
