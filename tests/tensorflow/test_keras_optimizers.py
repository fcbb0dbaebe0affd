"""A fit goes on after a kill whatever its optimizer: of Keras, wrapped by Horovod, scaling losses.

Each of them trains a small model three times in this process: undisturbed, killed, and gone on.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fake_worker import FakeArena, FakeWorker, Killed, incarnation

tf = pytest.importorskip("tensorflow")
hvd = pytest.importorskip("horovod.tensorflow.keras", reason="Horovod is not built")

from keras_script import Job, X, Y, assert_same, everything, fresh_process  # noqa: E402
from test_optimizers import OPTIONS, public  # noqa: E402

from hvd_ft.tensorflow import callbacks as hvd_callbacks  # noqa: E402
from hvd_ft.tensorflow import variables  # noqa: E402

keras = tf.keras
KERAS, LEGACY = keras.optimizers, keras.optimizers.legacy
NEW = [kind for kind in public(KERAS, KERAS.Optimizer) if "LossScale" not in kind.__name__]
OLD = [kind for kind in public(LEGACY, LEGACY.Optimizer) if "LossScale" not in kind.__name__]
STEPS, KILL_AFTER, EVERY = 7, 5, 3
pytestmark = [  # job: they take as long as one
    pytest.mark.job,
    pytest.mark.filterwarnings("ignore:.*deprecated", "ignore:non-integer arguments"),
]


def wrapped(optimizer: Any, **options: Any) -> Any:
    return hvd.DistributedOptimizer(optimizer, **options)


def make(kind: type, **options: Any) -> Any:
    return kind(learning_rate=0.01, **OPTIONS.get(kind.__name__, {}), **options)


# How users make one of a kind.
WAYS: dict[str, Callable[[type], Any]] = {
    "plain": make,
    "clipped": lambda kind: make(kind, clipnorm=0.5),
    "wrapped": lambda kind: wrapped(make(kind)),
    "every second pass": lambda kind: wrapped(make(kind), backward_passes_per_step=2),
    "loss scale": lambda kind: keras.mixed_precision.LossScaleOptimizer(make(kind)),
    "loss scale, wrapped": lambda kind: keras.mixed_precision.LossScaleOptimizer(
        wrapped(make(kind)), initial_scale=8, dynamic_growth_steps=2
    ),
}
ONLY_NEW: dict[str, Callable[[type], Any]] = {
    "average": lambda kind: make(
        kind, use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=2, global_clipnorm=0.5
    ),
    "average, wrapped": lambda kind: wrapped(make(kind, use_ema=True, clipvalue=0.1)),
    "compiled": lambda kind: make(kind, jit_compile=True),
}


@pytest.fixture(autouse=True)
def _one_rank(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Horovod's wrappers as they are, in a job of one rank without a backend."""
    monkeypatch.setattr(
        "horovod.tensorflow._make_allreduce_grads_fn", lambda *_, **__: lambda grads, _: grads
    )
    monkeypatch.setattr(type(hvd.global_process_set), "size", lambda _: 1)
    yield
    keras.mixed_precision.set_global_policy("float32")
    keras.backend.clear_session()


def train(
    make_optimizer: Callable[[], Any], worker: FakeWorker, kill_after: int | None, **options: Any
) -> Any:
    """The user's script; returns all that training has made."""
    fresh_process()
    layers = [keras.layers.Dense(3, input_shape=(3,)), keras.layers.Dense(1, dtype="float32")]
    model = keras.Sequential(layers)
    model.compile(make_optimizer(), "mse", metrics=["mae"], **options)
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(4)
    fellows = [hvd_callbacks.FaultTolerance(EVERY), Job(worker, kill_after)]
    history = model.fit(data, epochs=1, verbose=0, callbacks=fellows).history
    return history, everything(model)


def check(make_optimizer: Callable[[], Any], **options: Any) -> None:
    with incarnation(FakeArena(), 0) as worker:
        history, values = train(make_optimizer, worker, None, **options)
    arena = FakeArena()
    with incarnation(arena, 0) as worker, pytest.raises(Killed):
        train(make_optimizer, worker, KILL_AFTER, **options)
    with incarnation(arena, 1) as worker:
        history_again, values_again = train(make_optimizer, worker, None, **options)
    assert worker.jumps == [0]
    assert history_again == history
    assert_same(values_again, values)


def cases() -> Iterator[Any]:
    """Adam in every way and the others in one way each; the rest takes minutes."""
    for number, kind in enumerate([*NEW, *OLD]):
        ways = [*WAYS, *(ONLY_NEW if kind in NEW else ())]
        for way in ways:
            now = kind is KERAS.Adam or way == ways[number % len(ways)]
            name = f"{'legacy.' if kind in OLD else ''}{kind.__name__}-{way}"
            yield pytest.param(kind, way, id=name, marks=() if now else pytest.mark.long)


@pytest.mark.shows
@pytest.mark.parametrize(("kind", "way"), list(cases()))
def test_every_optimizer(kind: type, way: str) -> None:
    if "loss scale" in way:
        keras.mixed_precision.set_global_policy("mixed_float16")
    check(lambda: (WAYS | ONLY_NEW)[way](kind))


def test_numbers_that_an_eager_optimizer_counts_are_kept() -> None:
    check(lambda: make(KERAS.Nadam), run_eagerly=True)


def test_what_fails_in_the_short_cut_the_step_does_right(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise AttributeError("of some optimizer to come")

    monkeypatch.setattr(variables, "_make_step_variables", fail)
    check(lambda: make(KERAS.Adam))
