"""A fit whose data an `ElasticSampler` deals out: killed, and with ranks that come and go."""

from typing import Any

import numpy as np
import pytest
from fake_worker import FakeArena, FakeWorker, Killed, incarnation

tf = pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow", reason="Horovod is not built")

from keras_script import assert_same, everything, fresh_process  # noqa: E402
from sampled_script import (  # noqa: E402, F401
    SAMPLES,
    Ranks,
    changing_ranks,
    die,
    load,
)

from hvd_ft.errors import HvdFtError  # noqa: E402
from hvd_ft.tensorflow import callbacks as hvd_callbacks  # noqa: E402
from hvd_ft.tensorflow.sampler import ElasticSampler  # noqa: E402
from hvd_ft.worker.sharding import epoch_order, shard  # noqa: E402

keras = tf.keras
pytestmark = [  # job: they take as long as one
    pytest.mark.job,
    pytest.mark.filterwarnings("ignore:non-integer arguments"),  # Keras's own
]


class Plan(keras.callbacks.Callback):
    """Does a collective a step; what the plan has for a step happens in its middle."""

    def __init__(self, worker: FakeWorker | None, plan: dict[int, Any]) -> None:
        super().__init__()
        self._worker = worker
        self._plan = plan

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._worker:
            self._worker.collective(f"step {logs['loss']!r}")
        event = self._plan.get(len(self.model.seen) - 1)
        if event is not None:
            event()


class Recording(keras.Sequential):
    """Notes what it is trained with."""

    seen: list[list[int]]

    def train_step(self, data: Any) -> Any:
        x, indices = data
        seen = self.seen

        def note(indices: np.ndarray) -> np.int64:
            seen.append(indices.tolist())
            return np.int64(0)

        with tf.control_dependencies([tf.numpy_function(note, [indices], tf.int64)]):
            return super().train_step((x, x[:, :1]))


def fit(
    worker: FakeWorker | None, plan: dict[int, Any], drop: bool = False, **more: Any
) -> tuple[keras.Model, ElasticSampler]:
    fresh_process()
    model = Recording([keras.layers.Dense(4), keras.layers.Dense(1)])
    model.seen = []
    model.compile(keras.optimizers.Adam(0.05), "mse")
    sampler = ElasticSampler(SAMPLES, seed=5)
    data = sampler.dataset(2, drop).map(load).prefetch(3)
    fellows = [Plan(worker, plan), hvd_callbacks.FaultTolerance(3)]
    model.fit(data, **{"epochs": 3, "verbose": 0, "callbacks": fellows, **more})
    return model, sampler


def expected_of_fit(changes: dict[int, tuple[int, int]], drop: bool = False) -> list[list[int]]:
    """The indices of each step, if behind some steps this process is another one of other ranks."""
    found: list[list[int]] = []
    rank, size = 0, 2
    for epoch in range(3):
        order, begin = epoch_order(SAMPLES, epoch, 5), 0
        while begin < SAMPLES and not (drop and SAMPLES - begin < 2 * size):
            end = min(SAMPLES, begin + 2 * size)
            found.append(shard(order, begin, end, rank, size).tolist())
            rank, size = changes.get(len(found) - 1, (rank, size))
            begin = end
    return found


@pytest.mark.shows
@pytest.mark.parametrize("drop", [False, True])
def test_a_killed_fit_ends_as_an_undisturbed_one(drop: bool) -> None:
    with incarnation(FakeArena(), 0) as worker:
        expected, sampler = fit(worker, {}, drop)
    assert expected.seen == expected_of_fit({}, drop)
    assert (sampler.epoch, sampler.processed_num) == (3, 0)
    for killed_at in (1, 5, 8, 14):
        arena = FakeArena()
        with incarnation(arena, 0) as worker, pytest.raises(Killed):
            fit(worker, {killed_at: die}, drop)
        with incarnation(arena, 1) as worker:
            model, again = fit(worker, {}, drop)
        since = (killed_at // 3) * 3
        assert model.seen == expected.seen[since:]
        assert again.state_dict() == sampler.state_dict()
        assert model.history.history == expected.history.history
        assert_same(everything(model), everything(expected))


def test_a_fit_that_is_over_is_passed(ranks: Ranks) -> None:
    arena = FakeArena()
    with incarnation(arena, 0) as worker:
        fit(worker, {})
    with incarnation(arena, 1) as worker:
        model, sampler = fit(worker, {})
    assert model.seen == []
    assert (sampler.epoch, sampler.processed_num) == (3, 0)


@pytest.mark.parametrize("drop", [False, True])
def test_the_number_of_ranks_may_change_in_a_fit(drop: bool, ranks: Ranks) -> None:
    changes = {1: (0, 1), 9: (2, 3), 14: (0, 8)}
    if drop:
        changes = {3: (0, 5), 4: (1, 2)}  # then nothing is left of the epoch
    plan = {at: lambda to=to: ranks.become(*to) for at, to in changes.items()}
    with incarnation(FakeArena(), 0) as worker:
        model, _ = fit(worker, plan, drop)
    assert model.seen == expected_of_fit(changes, drop)
    assert len(model.history.history["loss"]) == 3


def test_without_an_agent_a_fit_has_the_samplers_epochs() -> None:
    model, sampler = fit(None, {})
    assert model.seen == expected_of_fit({})
    assert (sampler.epoch, sampler.processed_num) == (3, 0)
    assert model.history.params["steps"] == 6


def test_a_fit_takes_its_length_from_the_sampler() -> None:
    with pytest.raises(HvdFtError, match="steps_per_epoch=4 and data of an ElasticSampler"):
        fit(None, {}, steps_per_epoch=4)
