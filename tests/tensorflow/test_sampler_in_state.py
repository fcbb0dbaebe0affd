"""A loop whose State has an `ElasticSampler`: killed, and with ranks that come and go."""

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
    X,
    changing_ranks,
    die,
    load,
)

from hvd_ft.errors import HvdFtError  # noqa: E402
from hvd_ft.tensorflow.sampler import ElasticSampler  # noqa: E402
from hvd_ft.tensorflow.state import State  # noqa: E402
from hvd_ft.worker.sharding import epoch_order, shard  # noqa: E402

keras = tf.keras
pytestmark = [  # job: they take as long as one
    pytest.mark.job,
    pytest.mark.filterwarnings("ignore:non-integer arguments"),  # Keras's own
]


def make_state(sampler: ElasticSampler) -> State:
    fresh_process()
    model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)])
    model.build((None, 3))
    return State(model, keras.optimizers.Adam(0.05), snapshot_steps=3, sampler=sampler, seen=[])


def step(state: State, worker: FakeWorker, indices: Any, plan: dict[int, Any]) -> None:
    """A step; what the plan has for it happens in its middle."""
    x = X[np.asarray(indices)]
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((state.model(x) - x[:, :1]) ** 2)
    event = plan.get(len(state.seen))
    if event is not None:
        event()
    worker.collective(f"gradients {float(loss)!r}")
    variables = state.model.trainable_variables
    state.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
    state.seen.append(np.asarray(indices).tolist())


def by_dataset(worker: FakeWorker, plan: dict[int, Any]) -> State:
    sampler = ElasticSampler(SAMPLES, seed=5)
    state = make_state(sampler)
    state.sync()
    data = sampler.dataset(2).map(load).prefetch(3)
    while state.epoch < 3:
        assert state.epoch == sampler.epoch
        for _, indices in state.batches(data):
            step(state, worker, indices, plan)
    return state


def by_draws(worker: FakeWorker, plan: dict[int, Any]) -> State:
    sampler = ElasticSampler(SAMPLES, seed=5)
    state = make_state(sampler)
    state.sync()
    while sampler.epoch < 3:
        for indices in sampler.batches(2):
            step(state, worker, indices, plan)
            state.commit()
        sampler.set_epoch(sampler.epoch + 1)
    return state


def by_recording(worker: FakeWorker, plan: dict[int, Any]) -> State:
    sampler = ElasticSampler(SAMPLES, seed=5)
    state = make_state(sampler)
    state.sync()
    while state.epoch < 3:
        for batch, indices in enumerate(sampler.dataset(2)):
            step(state, worker, indices, plan)
            sampler.record_batch(batch, 2)
            state.commit()
        state.epoch += 1
        sampler.set_epoch(state.epoch)
    return state


def contents(state: State) -> list[np.ndarray]:
    return everything(state.model, state.optimizer)


LOOPS = {"dataset": by_dataset, "draws": by_draws, "recording": by_recording}


@pytest.mark.shows(later=True)
@pytest.mark.parametrize("name", LOOPS)
def test_a_killed_loop_ends_as_an_undisturbed_one(name: str) -> None:
    loop = LOOPS[name]
    with incarnation(FakeArena(), 0) as worker:
        expected = loop(worker, {})
    order = epoch_order(SAMPLES, 0, 5)
    assert expected.seen[0] == shard(order, 0, 4, 0, 2).tolist()
    assert len(expected.seen) == 3 * 6
    for killed_at in (2, 5, 6, 7, 12):  # the 6th is an epoch's last
        arena = FakeArena()
        with incarnation(arena, 0) as worker, pytest.raises(Killed):
            loop(worker, {killed_at: die})
        with incarnation(arena, 1) as worker:
            state = loop(worker, {})
        assert worker.jumps == ([0] if killed_at > 2 else [])
        assert state.seen == expected.seen
        assert state.sampler.state_dict() == expected.sampler.state_dict()
        assert_same(contents(state), contents(expected))


@pytest.mark.parametrize("name", ["dataset", "draws"])
def test_the_number_of_ranks_may_change_in_a_step(name: str, ranks: Ranks) -> None:
    plan = {2: lambda: ranks.become(0, 1), 7: lambda: ranks.become(1, 3)}
    with incarnation(FakeArena(), 0) as worker:
        state = LOOPS[name](worker, plan)
    epochs = iter(range(3))
    order, begin, expected = epoch_order(SAMPLES, next(epochs), 5), 0, []
    for number in range(len(state.seen)):
        rank, size = (0, 2) if number < 3 else (0, 1) if number < 8 else (1, 3)
        end = min(SAMPLES, begin + 2 * size)
        expected.append(shard(order, begin, end, rank, size).tolist())
        begin = end
        if begin == SAMPLES:
            order, begin = epoch_order(SAMPLES, next(epochs, 0), 5), 0
    assert state.seen == expected
    assert begin == 0, "the last epoch has ended too"


@pytest.mark.shows
def test_a_state_has_to_have_the_sampler() -> None:
    sampler = ElasticSampler(SAMPLES)
    with pytest.raises(HvdFtError, match="ElasticSampler is not in this State"):
        next(State(lr=1).batches(sampler.dataset(2)))
    with pytest.raises(HvdFtError, match="ElasticSampler is not in this State"):
        next(State(sampler=ElasticSampler(SAMPLES)).batches(sampler.dataset(2)))
    assert next(State(sampler=sampler).batches(sampler.dataset(2))).shape == [2]
