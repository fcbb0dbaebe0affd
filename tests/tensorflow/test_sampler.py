"""`ElasticSampler` deals each sample out once, to however many ranks there are at each step."""

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import pytest
from fake_worker import FakeArena, FakeWorker, incarnation

tf = pytest.importorskip("tensorflow")
hvd = pytest.importorskip("horovod.tensorflow", reason="Horovod is not built")

from keras_script import everything, fresh_process  # noqa: E402

from hvd_ft.errors import HvdFtError  # noqa: E402
from hvd_ft.tensorflow import callbacks as hvd_callbacks  # noqa: E402
from hvd_ft.tensorflow import sampled_data  # noqa: E402
from hvd_ft.tensorflow import state as state_module  # noqa: E402
from hvd_ft.tensorflow.sampled_data import sampled  # noqa: E402
from hvd_ft.tensorflow.sampler import ElasticSampler  # noqa: E402
from hvd_ft.tensorflow.state import State  # noqa: E402
from hvd_ft.worker.sharding import epoch_order, shard  # noqa: E402

keras = tf.keras
pytestmark = pytest.mark.filterwarnings("ignore:non-integer arguments")  # Keras's own
SAMPLES = 23
X = np.random.default_rng(0).standard_normal((SAMPLES, 3)).astype(np.float32)


class Ranks:
    """The number of ranks, which a test changes, and which of them this process is."""

    rank, size = 0, 2

    def become(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


class Killed(Exception):
    """Stands for SIGKILL."""


@pytest.fixture(autouse=True)
def ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ranks]:
    """Stands for Horovod."""
    found = Ranks()
    monkeypatch.setattr(hvd, "rank", lambda: found.rank)
    monkeypatch.setattr(hvd, "size", lambda: found.size)

    def broadcast(variables: list[Any], values: bytes) -> bytes:
        worker = state_module.native.worker()
        if worker is not None:
            worker.collective(f"broadcast {values!r}")
        return values

    monkeypatch.setattr(state_module, "_broadcast", broadcast)
    yield found
    keras.backend.clear_session()


def of_every_rank(ranks: Ranks, size: int, draw: Callable[[ElasticSampler], Any]) -> list[Any]:
    """What each of several ranks draws from a sampler of its own, all with the same state."""
    drawn = []
    for rank in range(size):
        ranks.become(rank, size)
        drawn.append(draw(ElasticSampler(SAMPLES, seed=5)))
    return drawn


# ------------------------------------------------------------------ by itself


def test_it_is_used_as_horovods_for_torch(ranks: Ranks) -> None:
    """Two steps with 3 ranks; the state goes to 2 ranks, which get what is left."""

    def begin(sampler: ElasticSampler) -> tuple[list[int], dict[str, Any]]:
        sampler.set_epoch(1)
        assert len(sampler) == 8
        indices = list(sampler)
        assert len(indices) == 8
        for step in range(2):
            sampler.record_batch(step, 2)
        assert len(sampler) == 4
        return indices[:4], sampler.state_dict()

    before = of_every_rank(ranks, 3, begin)
    states = [state for _, state in before]
    assert states[0] == states[1] == states[2]

    def go_on(sampler: ElasticSampler) -> list[int]:
        sampler.load_state_dict(states[0])
        sampler.reset()
        return list(sampler)

    after = of_every_rank(ranks, 2, go_on)
    assert {len(indices) for indices in after} == {6}
    order = epoch_order(SAMPLES, 1, 5).tolist()
    assert sorted(chain(*(indices for indices, _ in before))) == sorted(order[:12])
    assert sorted(chain(*after)) == sorted([*order[12:], order[0]])


def test_without_shuffling_and_of_any_data_set() -> None:
    assert list(ElasticSampler(range(5), shuffle=False)) == [0, 2, 4]
    assert list(ElasticSampler(np.zeros((4, 2)), shuffle=False)) == [0, 2]
    assert list(ElasticSampler(tf.data.Dataset.range(3), shuffle=False)) == [0, 2]
    sampler = ElasticSampler(6, shuffle=False)
    sampler.set_epoch(4)
    assert list(sampler) == [0, 2, 4]


def test_each_epoch_has_an_order_of_its_own() -> None:
    sampler = ElasticSampler(SAMPLES)
    first = list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) != first
    sampler.set_epoch(0)
    assert list(sampler) == first
    assert list(ElasticSampler(SAMPLES, seed=1)) != first


def test_a_draw_goes_to_the_ranks_that_there_are(ranks: Ranks) -> None:
    sampler = ElasticSampler(SAMPLES, seed=5)
    order = epoch_order(SAMPLES, 0, 5)
    drawn = sampler.batches(2)
    assert next(drawn).tolist() == shard(order, 0, 4, 0, 2).tolist()
    ranks.become(2, 3)  # in the middle of that step
    assert sampler.processed_num == 4
    assert next(drawn).tolist() == shard(order, 4, 10, 2, 3).tolist()
    ranks.become(0, 1)
    assert sampler.steps(2) == 7
    assert sampler.steps(2, drop_remainder=True) == 6
    assert [len(indices) for indices in drawn] == [2, 2, 2, 2, 2, 2, 1]
    assert sampler.processed_num == SAMPLES
    assert list(drawn) == list(sampler) == []


def test_iteration_goes_on_behind_what_is_recorded(ranks: Ranks) -> None:
    sampler = ElasticSampler(SAMPLES, seed=5)
    order = epoch_order(SAMPLES, 0, 5)
    drawn = iter(sampler)
    assert [next(drawn), next(drawn)] == shard(order, 0, 4, 0, 2).tolist()
    ranks.become(0, 3)  # in the middle of the step, which was dealt to 2
    sampler.record_batch(0, 2)
    assert sampler.processed_num == 4
    assert list(drawn) == shard(order, 4, SAMPLES, 0, 3).tolist()


def test_misuse_is_named() -> None:
    with pytest.raises(HvdFtError, match="nothing to deal out"):
        ElasticSampler([])
    with pytest.raises(HvdFtError, match="cannot shuffle by seed -1"):
        ElasticSampler(3, seed=-1)
    for draw in (ElasticSampler.dataset, lambda sampler, size: next(sampler.batches(size))):
        with pytest.raises(HvdFtError, match="a step cannot have 0 samples"):
            draw(ElasticSampler(3), 0)
    other = ElasticSampler(SAMPLES, seed=5).state_dict()
    with pytest.raises(HvdFtError, match=r"23 samples, seed 5, but .* with 23 samples, not shuff"):
        ElasticSampler(SAMPLES, shuffle=False).load_state_dict(other)
    with pytest.raises(HvdFtError, match="with 22 samples, seed 5"):
        ElasticSampler(22, seed=5).load_state_dict(other)


# ------------------------------------------------------------------ as a tf.data.Dataset


def load(indices: Any) -> Any:
    return tf.gather(X, indices), indices


def test_a_dataset_has_the_same_batches(ranks: Ranks) -> None:
    for drop in (False, True):
        expected = [b.tolist() for b in ElasticSampler(SAMPLES).batches(4, drop)]
        dataset = ElasticSampler(SAMPLES).dataset(4, drop)
        assert [batch.numpy().tolist() for batch in dataset] == expected
        assert dataset.element_spec.shape.as_list() == [4 if drop else None]
    assert len(expected) == 2


def test_what_is_read_ahead_does_not_count(ranks: Ranks) -> None:
    sampler = ElasticSampler(SAMPLES, seed=5)
    dataset = sampler.dataset(2).map(load, num_parallel_calls=2).prefetch(4)
    order = epoch_order(SAMPLES, 0, 5)
    data = sampled(dataset)
    assert data is not None
    begin = 0
    for step, (x, indices) in enumerate(data.batches()):
        end = min(SAMPLES, begin + 2 * ranks.size)
        assert indices.numpy().tolist() == shard(order, begin, end, ranks.rank, ranks.size).tolist()
        np.testing.assert_array_equal(x, X[indices])
        assert sampler.processed_num == end
        begin = end
        if step == 1:
            ranks.become(1, 3)
        if step == 2:
            ranks.become(0, 1)
    assert begin == SAMPLES


def test_an_iterator_is_dealt_where_its_first_batch_is_drawn(ranks: Ranks) -> None:
    """As Keras makes one that it does not draw from."""
    sampler = ElasticSampler(8, shuffle=False)
    iterator = iter(sampler.dataset(2))
    ranks.become(1, 2)
    sampler.record_batch(0, 2)
    assert next(iterator).numpy().tolist() == [5, 7]


def test_what_may_follow(capsys: pytest.CaptureFixture[str]) -> None:
    base = ElasticSampler(SAMPLES).dataset(4)
    options = tf.data.Options()
    for dataset in (
        base,
        base.map(load).prefetch(2).with_options(options),
        base.map(load, num_parallel_calls=2),
        base.unbatch().map(load).batch(4),
        base.unbatch().map(load).batch(4, num_parallel_calls=2).map(lambda x, _: x),
        base.unbatch().map(tf.range).padded_batch(4),
    ):
        assert sampled(dataset) is not None
    assert sampled(tf.data.Dataset.range(3).map(lambda i: i).batch(2)) is None
    assert sampled([1, 2]) is None
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("follow", "named"),
    [
        (lambda base: base.shuffle(4), "ShuffleDataset"),
        (lambda base: base.repeat(2), "RepeatDataset"),
        (lambda base: base.map(load).take(2), "TakeDataset"),
        (lambda base: base.batch(2), "BatchDataset"),
        (lambda base: base.unbatch().batch(3), "BatchDataset"),
        (lambda base: base.unbatch().batch(4, drop_remainder=True), "BatchDataset"),
        (lambda base: base.unbatch().map(load), "unbatch without batch"),
        (lambda base: tf.data.Dataset.zip((base, base)), "ZipDataset"),
        (lambda base: tf.data.Dataset.zip((tf.data.Dataset.range(9), base)), "ZipDataset"),
    ],
)
def test_what_cannot_be_counted_is_named(follow: Callable[[Any], Any], named: str) -> None:
    with pytest.raises(HvdFtError, match=f"^{named} stands behind ElasticSampler.dataset"):
        sampled(follow(ElasticSampler(SAMPLES).dataset(4)))


def test_random_numbers_in_the_pipeline_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    base = ElasticSampler(SAMPLES).dataset(4)
    sampled_data._say_what_is_drawn_again.cache_clear()
    sampled(base.map(lambda i: i + tf.random.stateless_uniform([], [1, 2], 0, 5, tf.int64)))
    assert capsys.readouterr().err == ""
    for draws in (tf.random.uniform, tf.random.get_global_generator().normal):
        sampled_data._say_what_is_drawn_again.cache_clear()
        sampled(base.map(lambda i, draws=draws: draws(tf.shape(i))))
        assert "draws random numbers in the pipeline" in capsys.readouterr().err


# ------------------------------------------------------------------ in a State


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


def die() -> None:
    raise Killed


def contents(state: State) -> list[np.ndarray]:
    return everything(state.model, state.optimizer)


LOOPS = {"dataset": by_dataset, "draws": by_draws, "recording": by_recording}


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
        for one, other in zip(contents(state), contents(expected), strict=True):
            np.testing.assert_array_equal(one, other)


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


def test_a_state_has_to_have_the_sampler() -> None:
    sampler = ElasticSampler(SAMPLES)
    with pytest.raises(HvdFtError, match="ElasticSampler is not in this State"):
        next(State(lr=1).batches(sampler.dataset(2)))
    with pytest.raises(HvdFtError, match="ElasticSampler is not in this State"):
        next(State(sampler=ElasticSampler(SAMPLES)).batches(sampler.dataset(2)))
    assert next(State(sampler=sampler).batches(sampler.dataset(2))).shape == [2]


# ------------------------------------------------------------------ in a fit


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
        for one, other in zip(everything(model), everything(expected), strict=True):
            np.testing.assert_array_equal(one, other)


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
