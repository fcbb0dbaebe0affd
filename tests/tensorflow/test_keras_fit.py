"""A fit that is killed and resumed ends as if nothing had happened, bit for bit."""

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_worker import FakeArena, FakeWorker, Killed, incarnation

tf = pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow", reason="Horovod is not built")

from keras_script import (  # noqa: E402
    BATCH,
    DATA,
    EPOCHS,
    STEPS,
    Job,
    X,
    Y,
    assert_same,
    end_process,
    everything,
    fresh_process,
    make_model,
)

from hvd_ft.errors import HvdFtError  # noqa: E402
from hvd_ft.tensorflow import callbacks as hvd_callbacks  # noqa: E402
from hvd_ft.tensorflow import fit_loop  # noqa: E402
from hvd_ft.tensorflow.data import carries_state  # noqa: E402
from hvd_ft.tensorflow.keras_api import KERAS_3  # noqa: E402
from hvd_ft.tensorflow.variables import fit_variables  # noqa: E402
from hvd_ft.worker import shared_contents, snapshot_interval, snapshot_writer  # noqa: E402
from hvd_ft.worker.snapshot_interval import FIRST_STEPS  # noqa: E402
from hvd_ft.worker.snapshot_writer import SnapshotWriter  # noqa: E402

keras = tf.keras
pytestmark = [  # job: they take as long as one
    pytest.mark.job,
    pytest.mark.filterwarnings("ignore:non-integer arguments"),  # Keras's own
]


def train(
    data: str,
    worker: FakeWorker,
    kill_after: int | None,
    *,
    every: int | None = 3,
    compile_args: Callable[[], dict[str, Any]] = dict,
    more: Sequence[Any] = (),
) -> tuple[keras.Model, dict[str, list[float]]]:
    """The user's script."""
    fresh_process()
    model = make_model(**compile_args())
    model.fit(
        **DATA[data](),
        epochs=EPOCHS,
        verbose=0,
        callbacks=[
            *more,
            hvd_callbacks.FaultTolerance(every),
            job := Job(worker, kill_after),
            keras.callbacks.ReduceLROnPlateau("loss", patience=1, min_delta=1e9),
        ],
    )
    assert job.steps > 0
    return model, model.history.history


def killed(data: str, arena: FakeArena, number: int, after: int, **args: Any) -> None:
    with incarnation(arena, number) as worker, pytest.raises(Killed):
        train(data, worker, after, **args)


WAYS_TO_COMPILE: dict[str, Callable[[], dict[str, Any]]] = {
    "loss_scale": lambda: {
        "optimizer": keras.mixed_precision.LossScaleOptimizer(keras.optimizers.Adam())
    },
    "eager": lambda: {"run_eagerly": True},
    "steps_per_execution": lambda: {"steps_per_execution": 3},
}
if KERAS_3:
    WAYS_TO_COMPILE |= {
        "averages": lambda: {
            "optimizer": keras.optimizers.Adam(0.05, use_ema=True, ema_overwrite_frequency=4)
        },
        "accumulation": lambda: {
            "optimizer": keras.optimizers.Adam(0.05, gradient_accumulation_steps=4)
        },
    }
else:
    WAYS_TO_COMPILE["legacy"] = lambda: {
        "optimizer": keras.optimizers.legacy.SGD(0.01, momentum=0.9)
    }


@cache
def undisturbed(data: str) -> tuple[list[np.ndarray], dict[str, list[float]], list[list[float]]]:
    with incarnation(FakeArena(), 0) as worker:
        model, history = train(data, worker, None)
    return everything(model), history, model.seen


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    yield
    end_process()


def resumed(
    data: str, kill_after: int, **args: Any
) -> tuple[keras.Model, dict[str, list[float]], FakeWorker]:
    arena = FakeArena()
    killed(data, arena, 0, kill_after, **args)
    with incarnation(arena, 1) as worker:
        model, history = train(data, worker, None, **args)
    return model, history, worker


@pytest.mark.shows
@pytest.mark.parametrize("data", DATA)
def test_a_killed_fit_ends_as_an_undisturbed_one(data: str) -> None:
    weights, history, batches = undisturbed(data)
    model, resumed_history, worker = resumed(data, kill_after=11)
    assert worker.jumps == [0]
    assert model.seen == batches[9:]  # the snapshot lies before step 9
    assert_same(everything(model), weights)
    assert resumed_history == history


@pytest.mark.parametrize(("kill_after", "resumed_at"), [(3, 0), (4, 3), (7, 6), (21, 18)])
def test_it_may_die_at_any_step(kill_after: int, resumed_at: int) -> None:
    weights, history, batches = undisturbed("reshuffle")
    model, resumed_history, worker = resumed("reshuffle", kill_after)
    assert worker.jumps == ([0] if resumed_at else [])
    assert model.seen == batches[resumed_at:]
    assert_same(everything(model), weights)
    assert resumed_history == history


@pytest.mark.parametrize(("every", "resumed_at"), [(2, 10), (None, 2 * (FIRST_STEPS + 1))])
def test_what_is_copied_beside_training_is_the_boundarys(
    every: int | None, resumed_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the test above, but everything is left to the other thread, which waits for an update."""
    monkeypatch.setattr(snapshot_writer, "LARGE_SNAPSHOT_BYTES", 0)
    monkeypatch.setattr(shared_contents, "MIN_SHARED_BYTES", 0)
    monkeypatch.setattr(snapshot_interval, "SHORTEST_SECONDS", 1e6)  # chosen: the first three
    stepped, over, copied = threading.Event(), threading.Event(), threading.Event()
    copied.set()
    write, finish = SnapshotWriter.write, SnapshotWriter._finish

    def wait_for_a_step(*args: Any) -> bool:
        if not over.is_set():
            stepped.clear()
            copied.clear()
        return write(*args)

    def late(*args: Any) -> int:
        assert stepped.wait(30)
        result = finish(*args)
        copied.set()
        return result

    class Stepped(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            stepped.set()
            assert copied.wait(30)  # or the next snapshot may have to wait for it

        def on_train_end(self, logs: Any = None) -> None:
            over.set()  # the last snapshot has no step after it

    weights, history, batches = undisturbed("reshuffle")
    monkeypatch.setattr(SnapshotWriter, "_finish", late)
    monkeypatch.setattr(SnapshotWriter, "write", wait_for_a_step)
    model, resumed_history, worker = resumed("reshuffle", 11, every=every, more=[Stepped()])
    assert worker.jumps == [0]
    assert model.seen == batches[resumed_at:]
    assert_same(everything(model), weights)
    assert resumed_history == history


def test_what_data_has_drawn_again_is_not_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is drawn ahead, as time allows: a snapshot's state may be that of another batch."""
    given: list[dict[str, Any]] = []
    restore_all = fit_loop.restore_rng_state

    def restore(state: dict[str, Any]) -> None:
        given.append(state)
        restore_all(state)

    monkeypatch.setattr(fit_loop, "restore_rng_state", restore)
    resumed("sequence", 4)
    [state] = given
    assert "numpy" not in state
    assert "eager" in state  # from which it has not drawn


def test_it_may_die_again_and_again() -> None:
    weights, history, _ = undisturbed("augmented")
    arena = FakeArena()
    for number, after in enumerate([5, 8, 8]):
        killed("augmented", arena, number, after)
    with incarnation(arena, 3) as worker:
        model, resumed_history = train("augmented", worker, None)
    assert_same(everything(model), weights)
    assert resumed_history == history


def test_no_snapshot_at_the_end_of_an_epoch_of_unknown_length() -> None:
    """Keras cannot continue from there: it wants one step more in that epoch."""
    weights, history, batches = undisturbed("unknown_length")
    model, resumed_history, _ = resumed("unknown_length", kill_after=STEPS + 1, every=STEPS)
    assert model.seen == batches[STEPS:]
    assert_same(everything(model), weights)
    assert resumed_history == history


@pytest.mark.shows
@pytest.mark.parametrize("way", WAYS_TO_COMPILE)
def test_ways_to_compile(way: str) -> None:
    compile_args = WAYS_TO_COMPILE[way]
    with incarnation(FakeArena(), 0) as worker:
        model, history = train("reshuffle", worker, None, compile_args=compile_args)
    again, resumed_history, worker = resumed("reshuffle", kill_after=6, compile_args=compile_args)
    assert worker.jumps == [0]
    assert_same(everything(again), everything(model))
    assert resumed_history == history


@pytest.mark.shows
@pytest.mark.parametrize("data", ["augmented", "generator"])
def test_validation_data_is_where_it_was(data: str) -> None:
    def script(worker: FakeWorker, kill_after: int | None) -> tuple[Any, ...]:
        fresh_process()
        model, told = make_model(), []
        held_out = DATA[data]()["x"]
        for epochs in (2, 3):
            fellows = [hvd_callbacks.FaultTolerance(4), Job(worker, kill_after)]
            common = {**DATA["reshuffle"](), "validation_data": held_out, "verbose": 0}
            told.append(model.fit(**common, epochs=epochs, callbacks=fellows).history)
            kill_after = kill_after and kill_after - fellows[1].steps
        return told, everything(model)

    with incarnation(FakeArena(), 0) as worker:
        expected = script(worker, None)
    arena = FakeArena()
    # Twice in the first fit, and twice in the second; each process has taken a snapshot of its own.
    for number, kill_after in enumerate([STEPS + 5, STEPS + 6, 4 * STEPS + 5, 5 * STEPS]):
        with incarnation(arena, number) as worker, pytest.raises(Killed):
            script(worker, kill_after)
        assert worker.snapshots > 0
    with incarnation(arena, 4) as worker:
        told, weights = script(worker, None)
    assert told == expected[0]
    assert_same(weights, expected[1])


def test_whole_passes_are_drawn_again_only_where_needed() -> None:
    carrying = {name for name in DATA if name != "arrays" and carries_state(DATA[name]()["x"])}
    assert carrying == {"repeat", "repeat_in_epoch", "cache", "generator", "sequence"}


@contextmanager
def random_generators() -> Iterator[None]:
    """Lets layers have generators of their own, as those of Keras 3 always have."""
    if KERAS_3:
        yield
        return
    keras.backend.experimental.enable_tf_random_generator()
    yield
    keras.backend.experimental.disable_tf_random_generator()


def two_fits(data: str, worker: FakeWorker, kill_after: int | None) -> tuple[Any, ...]:
    """Fits that share their data, stop early, and draw random numbers in between."""
    fresh_process()
    with random_generators():
        model = make_model(layers=[keras.layers.Dense(4), keras.layers.Dropout(0.5)])
    common = DATA[data]()
    job = Job(worker, kill_after)
    results: list[Any] = []
    for epochs in (3, 9):
        stop = keras.callbacks.EarlyStopping("loss", patience=2, min_delta=1e3)
        fellows = [hvd_callbacks.FaultTolerance(4), job, stop]
        fitted = model.fit(**common, epochs=epochs, verbose=0, callbacks=fellows)
        worker.collective("between")
        numbers = tf.data.Dataset.range(9).shuffle(9)
        results += [fitted.history, random.random(), np.random.rand(), *map(int, numbers)]
    return everything(model), model.seen, results, job.steps


@pytest.mark.parametrize("data", ["reshuffle", "cache", "unknown_length", "arrays"])
def test_ended_fits_are_passed_without_a_step(data: str) -> None:
    with incarnation(FakeArena(), 0) as worker:
        weights, seen, results, steps = two_fits(data, worker, None)
    assert len(seen) == steps, "both stop after three epochs"
    kill_after = steps // 2 + 7
    arena = FakeArena()
    with incarnation(arena, 0) as worker, pytest.raises(Killed):
        two_fits(data, worker, kill_after)
    with incarnation(arena, 1) as worker:
        again, seen_again, results_again, steps_again = two_fits(data, worker, None)
    assert worker.jumps == [0, 1]
    assert seen_again == seen[steps // 2 + 4 :]
    assert_same(again, weights)
    assert (results_again, steps_again) == (results, steps)


def test_a_restarted_script_may_have_other_callbacks() -> None:
    """Such as one that is only there to be tried out, and only at first."""
    weights, history, _ = undisturbed("reshuffle")
    arena = FakeArena()
    killed("reshuffle", arena, 0, 8)
    with incarnation(arena, 1) as worker:
        model, resumed_history = train(
            "reshuffle", worker, None, more=[keras.callbacks.LambdaCallback()]
        )
    assert_same(everything(model), weights)
    assert resumed_history == history


class WordModel(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = keras.layers.Embedding(9, 4)
        self.out = keras.layers.Dense(1)

    def call(self, inputs: dict[str, Any]) -> Any:
        return self.out(self.embedding(inputs["word"]))[:, 0]


def test_a_model_is_built_from_what_it_was_called_with() -> None:
    def script() -> list[np.ndarray]:
        fresh_process()
        model = WordModel()
        model.compile(keras.optimizers.Adam(0.05), "mse")
        words = {"word": np.arange(8, dtype=np.int32)}
        model.fit(words, Y[:8], verbose=0, callbacks=[hvd_callbacks.FaultTolerance()])
        return everything(model)

    arena = FakeArena()
    with incarnation(arena, 0):
        weights = script()
    with incarnation(arena, 1) as worker:
        assert_same(script(), weights)
    assert worker.jumps == [0]


@pytest.mark.shows
def test_no_snapshot_while_a_collective_is_on_its_way() -> None:
    arena = FakeArena()
    with incarnation(arena, 0) as worker:
        worker.busy = 1
        train("reshuffle", worker, None)
    assert arena.loops[0].data is None
    assert arena.loops[0].ended


def test_horovods_broadcast_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    broadcasts = []
    monkeypatch.setattr(
        "horovod._keras.callbacks.hvd.broadcast_variables",
        lambda variables, root_rank: broadcasts.append(len(variables)),
    )

    def script(worker: FakeWorker, kill_after: int | None) -> None:
        fresh_process()
        broadcast = hvd_callbacks.BroadcastGlobalVariablesCallback(0)
        fellows = [hvd_callbacks.FaultTolerance(2), broadcast, Job(worker, kill_after)]
        make_model().fit(X, Y, batch_size=BATCH, verbose=0, callbacks=fellows)

    arena = FakeArena()
    with incarnation(arena, 0) as worker, pytest.raises(Killed):
        script(worker, 4)
    assert len(broadcasts) == 2
    with incarnation(arena, 1) as worker:
        script(worker, None)
    assert len(broadcasts) == 2


def test_without_an_agent_nothing_changes() -> None:
    weights, *_ = undisturbed("reshuffle")
    fresh_process()
    model = make_model()
    model.fit(
        **DATA["reshuffle"](),
        epochs=EPOCHS,
        verbose=0,
        callbacks=[
            hvd_callbacks.FaultTolerance(),
            keras.callbacks.ReduceLROnPlateau("loss", patience=1, min_delta=1e9),
        ],
    )
    assert_same(everything(model), weights)


@pytest.mark.shows
def test_another_model_is_refused() -> None:
    arena = FakeArena()
    killed("reshuffle", arena, 0, 5)
    with (
        incarnation(arena, 1) as worker,
        pytest.raises(HvdFtError, match=r"the snapshot has \d+ variables"),
    ):
        train("reshuffle", worker, None, compile_args=lambda: {"optimizer": keras.optimizers.SGD()})


@pytest.mark.parametrize("data", ["reshuffle", "unknown_length"])
def test_shorter_data_is_refused(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arena = FakeArena()
    killed(data, arena, 0, 5)
    short = DATA[data]()["x"].take(2)
    monkeypatch.setitem(DATA, data, lambda: {"x": short})
    with incarnation(arena, 1) as worker, pytest.raises(HvdFtError, match="same batches"):
        train(data, worker, None)


def test_backup_and_restore_is_refused(tmp_path: Path) -> None:
    backup = keras.callbacks.BackupAndRestore(str(tmp_path))
    both = [hvd_callbacks.FaultTolerance(), backup]
    for fellows in (both, both[::-1]):
        (model := make_model()).build((None, 3))  # which Keras 3's wants
        with incarnation(FakeArena(), 0), pytest.raises(HvdFtError, match="no BackupAndRestore"):
            model.fit(X, Y, verbose=0, callbacks=fellows)


@pytest.mark.parametrize("steps", [0, -1, 1.5, "10"])
def test_snapshot_steps_are_checked(steps: Any) -> None:
    with pytest.raises(HvdFtError, match="snapshot_steps"):
        hvd_callbacks.FaultTolerance(steps)


def test_local_sums_of_horovods_optimizer_are_kept() -> None:
    """`backward_passes_per_step` keeps them where Keras does not look."""
    model = make_model()
    counter, local = tf.Variable(1), tf.Variable([2.0])
    model.optimizer._agg_helper = SimpleNamespace(
        counter=counter, locally_aggregated_grads={0: local}
    )
    assert [id(variable) for variable in fit_variables(model)[-2:]] == [id(counter), id(local)]
