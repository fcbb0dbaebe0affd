"""A loop of the user's own that is killed and resumed ends as if nothing had happened."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from fake_worker import FakeArena, FakeWorker, Killed, incarnation

tf = pytest.importorskip("tensorflow")
horovod = pytest.importorskip("horovod.tensorflow.keras", reason="Horovod is not built")

from keras_script import assert_same, draw_of_all, everything, fresh_process  # noqa: E402

from hvd_ft.errors import HvdFtError  # noqa: E402
from hvd_ft.tensorflow import state as state_module  # noqa: E402
from hvd_ft.tensorflow.keras_api import KERAS_3  # noqa: E402
from hvd_ft.tensorflow.state import State  # noqa: E402
from hvd_ft.tensorflow.variables import build_optimizer, different_shape, read  # noqa: E402
from hvd_ft.worker.divergence_rule import Kind  # noqa: E402

keras = tf.keras
pytestmark = [  # job: they take as long as one
    pytest.mark.job,
    pytest.mark.filterwarnings("ignore:non-integer arguments"),  # Keras's own
]
X = np.arange(60, dtype=np.float32).reshape(20, 3) / 50
Y = np.sin(X.sum(axis=1, keepdims=True))
BATCHES = 5


@pytest.fixture(autouse=True)
def broadcasts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Stands for Horovod: alone, a broadcast gives back what was given."""
    seen: list[int] = []

    def broadcast(variables: list[Any], values: bytes) -> bytes:
        seen.append(len(variables))
        worker = state_module.native.worker()
        if worker is not None:
            worker.collective(f"broadcast {len(variables)} {values!r}")
        return values

    monkeypatch.setattr(state_module, "_broadcast", broadcast)
    yield seen
    keras.backend.clear_session()


def make_state(**values: Any) -> State:
    fresh_process()
    model = keras.Sequential(
        [keras.layers.Dense(4), keras.layers.Dropout(0.2), keras.layers.Dense(1)]
    )
    model.build((None, 3))
    optimizer = keras.optimizers.Adam(0.05)
    return State(model, optimizer, snapshot_steps=3, **values)


def step(state: State, worker: FakeWorker, x: Any, y: Any, kill_at: int | None) -> None:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((state.model(x + draw_of_all(), training=True) - y) ** 2)
    worker.collective(f"gradients {float(loss)!r}")
    variables = state.model.trainable_variables
    state.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
    state.losses.append(float(loss))
    if len(state.losses) == kill_at:
        raise Killed


def with_batches(worker: FakeWorker, kill_at: int | None, shuffle: str = "plain") -> State:
    state = make_state(losses=[])
    state.sync()
    data = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(20)  # takes its seed here
    data = (data.cache() if shuffle == "cached" else data).batch(4)
    while state.epoch < 3:
        for x, y in state.batches(data):
            step(state, worker, x, y, kill_at)
        worker.collective(f"epoch {state.epoch}")
    return state


def by_hand(worker: FakeWorker, kill_at: int | None, finish: bool) -> State:
    """Two loops, with a collective after each."""
    state = make_state(losses=[], best=float("inf"))
    for number in range(2):
        state.batch = 0
        state.sync()
        order = np.random.default_rng(number).permutation(20)
        while state.batch < BATCHES:
            rows = order[4 * state.batch : 4 * state.batch + 4]
            step(state, worker, X[rows], Y[rows], kill_at)
            state.best = min(state.best, state.losses[-1])
            state.batch += 1
            state.commit()
        if finish:
            state.finish()
        worker.collective(f"loop {number}")
    return state


def contents(state: State) -> list[np.ndarray]:
    return everything(state.model, state.optimizer)


def values(state: State) -> dict[str, Any]:
    return state._get()


SCRIPTS = {
    "batches": with_batches,
    "batches_cached": partial(with_batches, shuffle="cached"),
    "by_hand": partial(by_hand, finish=False),
    "finished": partial(by_hand, finish=True),
}


@pytest.mark.shows(later=True)
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_killed_loop_ends_as_an_undisturbed_one(name: str) -> None:
    script: Any = SCRIPTS[name]
    with incarnation(FakeArena(), 0) as worker:
        expected = script(worker, None)
    for kill_at in (2, 5, 6, 9):
        arena = FakeArena()
        with incarnation(arena, 0) as worker, pytest.raises(Killed):
            script(worker, kill_at)
        with incarnation(arena, 1) as worker:
            state = script(worker, None)
        assert_same(contents(state), contents(expected))
        assert values(state) == values(expected)
        assert bool(worker.jumps) == (kill_at > 3)


def passed(worker: FakeWorker, kill_at: int | None) -> State:
    """A loop that draws its data by `batches`, and a random number after it."""
    state = with_batches(worker, None)
    state.finish()
    worker.collective(f"after {float(draw_of_all())!r}")
    if kill_at is not None:
        raise Killed
    return state


@pytest.mark.shows
def test_a_loop_killed_twice_ends_as_an_undisturbed_one() -> None:
    """In the third pass over its data; and after its end, where it is passed."""
    for script, kills in ((with_batches, (12, 14)), (passed, (1, 1))):
        with incarnation(FakeArena(), 0) as worker:
            expected = script(worker, None)
        arena = FakeArena()
        for number, kill_at in enumerate(kills):
            with incarnation(arena, number) as worker, pytest.raises(Killed):
                script(worker, kill_at)
        with incarnation(arena, len(kills)) as worker:
            state = script(worker, None)
        assert_same(contents(state), contents(expected))
        assert values(state) == values(expected)


def test_a_finished_loop_is_passed_without_a_step() -> None:
    arena = FakeArena()
    with incarnation(arena, 0) as worker, pytest.raises(Killed):
        by_hand(worker, BATCHES + 1, finish=True)
    assert arena.loops[0].ended
    with incarnation(arena, 1) as worker:
        by_hand(worker, None, finish=True)
    # The prologue of each loop and what lies between, but no step of the first loop.
    assert worker.jumps == [0]
    assert arena.loops[0].position == 1 + BATCHES


@pytest.mark.shows
def test_sync_broadcasts_slots_and_values(broadcasts: list[int]) -> None:
    state = make_state(lr=0.1)
    state.sync()
    [count] = broadcasts
    assert count == 4 + 2 + 2 * 4, "weights, iteration and learning rate, Adam's slots"
    state.commit()
    state.finish()
    assert (state.lr, state.epoch, state.batch) == (0.1, 0, 0)


LEGACY = None if KERAS_3 else keras.optimizers.legacy


def optimizers() -> list[Any]:
    kinds = [keras.optimizers.Adam, keras.optimizers.Nadam if KERAS_3 else LEGACY.Adam]
    return [*(kind() for kind in kinds), keras.optimizers.SGD(momentum=0.9)]


@pytest.mark.shows
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("registered", [False, True], ids=["named", "registered"])
def test_a_ranks_own_variables_are_left_to_it(number: int, registered: bool) -> None:
    """Neither they nor their slots are broadcast; they are kept, and may differ."""
    shard, weight = tf.Variable([1.0, 2.0], name="shard"), tf.Variable([3.0], name="weight")
    optimizer = optimizers()[number]
    if registered:
        optimizer = horovod.DistributedOptimizer(optimizer)
        optimizer.register_local_var(shard)
    own = {} if registered else {"local_variables": [shard]}
    state = State(optimizer=optimizer, variables=[weight, shard], **own)
    build_optimizer(optimizer, state._trainable())
    kept = read(state._all())
    shared = read(state._shared())
    assert len(kept) - len(shared) == 1 + [2, 2, 1][number]
    assert not [name for name, array in shared.items() if array.shape == (2,)]
    state._kept = state._all()
    known = [name for name, kind in state._kinds().items() if kind is Kind.OWN]
    assert sorted(known) == sorted(name for name, array in kept.items() if array.shape == (2,))


@pytest.mark.shows
def test_variables_of_other_shapes_are_named() -> None:
    own, of_root = [["a:0", "(3,)"], ["shard:0", "(2, 8)"]], [["a:0", "(3,)"], ["s:0", "(3, 8)"]]
    found = different_shape(own, of_root)
    assert found == "shard:0 has the shape (2, 8) on this rank, and (3, 8) on rank 0"
    assert not different_shape(own, own)
    assert different_shape(own[:1], own) == "this rank has 1 variables, rank 0 has 2"


def test_bare_variables_are_kept() -> None:
    arena = FakeArena()

    def script(end: int) -> float:
        counter = tf.Variable(0.0)
        state = State(variables=[counter], snapshot_steps=2)
        state.sync()
        while state.batch < end:
            counter.assign_add(1.5)
            state.batch += 1
            state.commit()
        return float(counter)

    with incarnation(arena, 0):
        assert script(5) == 7.5
    with incarnation(arena, 1) as worker:
        assert script(6) == 9.0
    assert worker.jumps == [0]


@pytest.mark.shows
def test_misuse_is_named() -> None:
    with pytest.raises(HvdFtError, match="model unbuilt is not built"):
        State(keras.Sequential([keras.layers.Dense(1)], name="unbuilt"))
    with pytest.raises(HvdFtError, match="reserves the name commit"):
        State(commit=1)
    with pytest.raises(HvdFtError, match="snapshot_steps"):
        State(snapshot_steps=0)
    with pytest.raises(HvdFtError, match=r"^file cannot be kept"):
        State(file=object()).sync()
