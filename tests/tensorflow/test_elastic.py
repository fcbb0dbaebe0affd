"""Scripts written for Horovod Elastic: killed, and with other ranks, they go on where they were."""

# ruff: noqa: B020 (that is how such scripts are written)

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from fake_worker import FakeArena, FakeWorker, Killed, incarnation

tf = pytest.importorskip("tensorflow")
hvd_tf = pytest.importorskip("horovod.tensorflow", reason="Horovod is not built")

import horovod.tensorflow.keras as hvd_keras  # noqa: E402
from keras_script import assert_same, everything, fresh_process  # noqa: E402

from hvd_ft import native  # noqa: E402
from hvd_ft.errors import HvdFtError  # noqa: E402
from hvd_ft.tensorflow import elastic, elastic_callbacks, elastic_state  # noqa: E402
from hvd_ft.tensorflow import state as state_module  # noqa: E402
from hvd_ft.tensorflow.callbacks import FaultTolerance  # noqa: E402
from hvd_ft.tensorflow.state import State  # noqa: E402

keras = tf.keras
pytestmark = pytest.mark.filterwarnings("ignore:non-integer arguments")  # Keras's own
EPOCHS, BATCHES = 3, 5
X = np.random.default_rng(0).standard_normal((BATCHES * 4, 3)).astype(np.float32)


@pytest.fixture(autouse=True)
def size(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The number of ranks, which a test may change; and the rest of Horovod."""
    ranks = [2]
    monkeypatch.setattr(hvd_tf, "rank", lambda: 0)
    monkeypatch.setattr(hvd_tf, "size", lambda: ranks[0])
    monkeypatch.setattr(native, "in_job", lambda: True)

    def broadcast(variables: list[Any], values: bytes) -> bytes:
        worker = native.worker()
        if worker is not None:
            worker.collective(f"broadcast {values!r}")
        return values

    monkeypatch.setattr(state_module, "_broadcast", broadcast)
    # Snapshots as often as possible.
    begin = State.__init__
    monkeypatch.setattr(
        State, "__init__", lambda *a, **more: begin(*a, **{"snapshot_steps": 1, **more})
    )
    begin_fit = FaultTolerance.__init__
    monkeypatch.setattr(FaultTolerance, "__init__", lambda self: begin_fit(self, 3))
    yield ranks
    keras.backend.clear_session()


def make_model() -> Any:
    fresh_process()
    model = keras.Sequential([keras.layers.Dense(4, input_shape=(3,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.05), "mse")
    return model


class Script:
    """The script of Horovod's documentation; the plan has what happens in the middle of a step.

    Args:
        every: batches from one commit to the next.
    """

    def __init__(self, every: int = 1) -> None:
        self.every = every
        self.trained: list[tuple[int, int]] = []
        self.calls = 0
        self.resets: list[tuple[int, int]] = []

    def run(self, worker: FakeWorker, plan: dict[int, Callable[[], None]]) -> Any:
        model = make_model()
        optimizer = model.optimizer

        def train_one_batch(epoch: int, batch: int) -> None:
            x = X[4 * batch : 4 * batch + 4]
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x) - x[:, :1]) ** 2)
            plan.get(len(self.trained), lambda: None)()
            worker.collective(f"gradients {float(loss)!r}")
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            self.trained.append((epoch, batch))

        @elastic.run
        def train(state: Any, more: str) -> str:
            self.calls += 1
            for state.epoch in range(state.epoch, EPOCHS):
                for state.batch in range(state.batch, BATCHES):
                    train_one_batch(state.epoch, state.batch)
                    if state.batch % self.every == 0:
                        state.commit()
                worker.collective(f"epoch {state.epoch}")
                state.batch = 0
            return more

        state = elastic.TensorFlowKerasState(model, optimizer, batch=0, epoch=0)
        state.register_reset_callbacks([lambda: self.resets.append((state.epoch, state.batch))])
        assert train(state, more="result") == "result"
        return state


def die() -> None:
    raise Killed


ALL = [(epoch, batch) for epoch in range(EPOCHS) for batch in range(BATCHES)]


@pytest.mark.parametrize("every", [1, 2])
def test_a_killed_loop_ends_as_an_undisturbed_one(every: int) -> None:
    with incarnation(FakeArena(), 0) as worker:
        expected = Script(every).run(worker, {})
    for killed_at in (1, 2, 4, 5, 6, 11):
        arena = FakeArena()
        before, after = Script(every), Script(every)
        with incarnation(arena, 0) as worker, pytest.raises(Killed):
            before.run(worker, {killed_at: die})
        with incarnation(arena, 1) as worker:
            state = after.run(worker, {})
        done = [number for number in range(killed_at) if ALL[number][1] % every == 0]
        # The first commit is not gone back to.
        assert after.trained == ALL[done[-1] + 1 if len(done) > 1 else 0 :]
        assert after.resets == [] and after.calls == 1
        assert_same(everything(state.model), everything(expected.model))


def test_the_function_is_called_again_when_the_number_of_ranks_changes(size: list[int]) -> None:
    script = Script(every=2)

    def shrink() -> None:
        size[0] = 1

    with incarnation(FakeArena(), 0) as worker:
        state = script.run(worker, {3: shrink, 7: lambda: size.__setitem__(0, 3)})
    assert script.trained == ALL, "no batch comes twice"
    # At the next commits.
    assert script.resets == [(0, 5), (1, 3)]
    assert script.calls == 3
    assert (state.epoch, state.batch) == (EPOCHS - 1, 0)


def test_what_a_subclass_does_comes_before_the_callbacks(size: list[int]) -> None:
    done: list[str] = []

    class Own(elastic_state.TensorFlowState):
        def reset(self) -> None:
            done.append("reset")

    state = Own([tf.Variable(1.0)])
    state.register_reset_callbacks([lambda: done.append("first"), lambda: done.append("second")])
    with incarnation(FakeArena(), 0):
        state.sync()
        state.commit()
        assert done == []
        state.on_reset()
    assert done == ["reset", "first", "second"]


def test_a_loop_that_does_not_count_is_named() -> None:
    with incarnation(FakeArena(), 0) as worker:
        state = elastic.TensorFlowState([tf.Variable(1.0)], epoch=0)
        state.sync()
        worker.collective("one")
        state.commit()
        state.commit()  # nothing was done
        worker.collective("another")
        with pytest.raises(HvdFtError, match=r"count its batches in state\.batch"):
            state.commit()


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(HvdFtError, match=r"hvd\.estimator\.FaultTolerance"):
        elastic.TensorFlowState([tf.Variable(1.0)], session=object())
    with pytest.raises(HvdFtError, match=r"model\.variables \+ optimizer\.variables"):
        elastic.TensorFlowState()
    with pytest.raises(HvdFtError, match="no rank goes back to a commit"):
        elastic.TensorFlowState([tf.Variable(1.0)]).restore()
    with pytest.raises(HvdFtError, match="reserves the name restore"):
        elastic.TensorFlowState([tf.Variable(1.0)], restore=1)
    with pytest.raises(HvdFtError, match="is not built"):
        elastic.KerasState(keras.Sequential([keras.layers.Dense(1)]))


def test_without_an_agent_the_names_are_horovods(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("run", "TensorFlowKerasState", "TensorFlowState"):
        assert getattr(elastic, name) is getattr(elastic_state, name)
    assert elastic.CommitStateCallback is elastic_callbacks.CommitStateCallback
    monkeypatch.setattr(native, "in_job", lambda: False)
    for name in ("run", "TensorFlowKerasState", "TensorFlowState"):
        assert getattr(elastic, name) is getattr(hvd_tf.elastic, name)
    for name in hvd_keras.elastic.__all__:
        assert getattr(elastic, name) is getattr(hvd_keras.elastic, name)
    assert set(hvd_keras.elastic.__all__) | set(hvd_tf.elastic.__all__) <= set(elastic.__all__)
    assert elastic.ObjectState is hvd_tf.elastic.ObjectState  # what we do not have is Horovod's
    with pytest.raises(AttributeError):
        _ = elastic.no_such_name


# ------------------------------------------------------------------ fit


class Job(keras.callbacks.Callback):
    """Does a collective a step; dies after the given one. Notes epoch and batch of the state."""

    def __init__(self, worker: FakeWorker, state: Any, plan: dict[int, Any]) -> None:
        super().__init__()
        self._worker = worker
        self._state = state
        self._plan = plan
        self.seen: list[tuple[int, int, int]] = []
        self.done = Counter[str]()  # steps of this process: no snapshot has such an object

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.done["steps"] += 1
        step = int(self.model.optimizer.iterations)
        self.seen.append((step, self._state.epoch, self._state.batch))
        self._worker.collective(f"step {logs['loss']!r}")
        self._plan.get(step, lambda: None)()


def fit(worker: FakeWorker, plan: dict[int, Any], size: list[int]) -> tuple[Any, Job]:
    """The script of Horovod's documentation."""
    model = make_model()
    state = elastic.KerasState(model, batch=0, epoch=0)
    state.register_reset_callbacks([lambda: worker.collective("reset")])
    callbacks = [
        elastic.CommitStateCallback(state, batches_per_commit=2),
        elastic.UpdateBatchStateCallback(state),
        elastic.UpdateEpochStateCallback(state),
        job := Job(worker, state, plan),
    ]
    data = tf.data.Dataset.from_tensor_slices((X, X[:, :1])).shuffle(20, seed=1).batch(4).repeat()

    @elastic.run
    def train(state: Any) -> None:
        state.model.fit(
            data,
            steps_per_epoch=2 * BATCHES // size[0],
            epochs=EPOCHS - state.epoch,
            callbacks=callbacks,
            verbose=0,
        )

    train(state)
    assert (state.epoch, state.batch) == (EPOCHS, 0)
    return model, job


def test_a_killed_fit_ends_as_an_undisturbed_one(size: list[int]) -> None:
    with incarnation(FakeArena(), 0) as worker:
        expected, undisturbed = fit(worker, {}, size)
    for killed_at in (4, 7, 11):
        arena = FakeArena()
        with incarnation(arena, 0) as worker, pytest.raises(Killed):
            fit(worker, {killed_at: die}, size)
        with incarnation(arena, 1) as worker:
            model, job = fit(worker, {}, size)
        assert worker.jumps == [1], "the loop of the state has ended with its first collective"
        assert job.seen == undisturbed.seen  # it is part of the snapshot, as plain attributes are
        assert job.done["steps"] == len(undisturbed.seen) - (killed_at - 1) // 3 * 3
        assert_same(everything(model), everything(expected))


def test_a_fit_ends_when_the_number_of_ranks_changes(size: list[int]) -> None:
    def shrink() -> None:
        size[0] = 1

    with incarnation(FakeArena(), 0) as worker:
        _, job = fit(worker, {7: shrink}, size)
    # At the next commit, that of step 8, with twice as many steps an epoch from then on.
    assert [step for step, _, _ in job.seen] == [*range(1, 8), *range(9, 29)]
    assert [epoch for _, epoch, _ in job.seen] == [0] * 5 + [1] * 2 + [1] * 10 + [2] * 10
