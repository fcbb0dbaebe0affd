"""What a fit draws at random it draws again after a restart, or it is said."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fake_worker import FakeArena, FakeWorker, Killed, incarnation

tf = pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow", reason="Horovod is not built")

from keras_script import (  # noqa: E402
    DATA,
    EPOCHS,
    STEPS,
    Job,
    assert_same,
    end_process,
    everything,
    fresh_process,
    images,
    make_model,
)

from hvd_ft.tensorflow import callbacks as hvd_callbacks  # noqa: E402
from hvd_ft.tensorflow.keras_api import KERAS_3  # noqa: E402

keras = tf.keras
pytestmark = [  # job: they take as long as one
    pytest.mark.job,
    pytest.mark.filterwarnings("ignore:non-integer arguments"),  # Keras's own
]


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    yield
    end_process()


def noisy_layers() -> list[Any]:
    return [
        keras.layers.Dense(4),
        keras.layers.Dropout(0.5),
        keras.layers.GaussianNoise(0.1),
        keras.layers.Lambda(lambda x: tf.nn.dropout(x, 0.3) + tf.random.normal([4], seed=2)),
    ]


@pytest.mark.shows(later=True)
@pytest.mark.parametrize("eagerly", [False, True], ids=["traced", "eager"])
def test_what_layers_and_operations_draw_is_drawn_again(
    eagerly: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """As users have them: without a generator that TensorFlow lets one read."""

    def script(worker: FakeWorker, kill_after: int | None) -> Any:
        fresh_process()
        model = keras.Sequential([*noisy_layers(), keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.05), "mse", run_eagerly=eagerly)
        fellows = [hvd_callbacks.FaultTolerance(3), Job(worker, kill_after)]
        history = model.fit(**DATA["reshuffle"](), epochs=2, verbose=0, callbacks=fellows).history
        # The generators that there are, and operations with and without a seed.
        drawn = [random.random(), np.random.rand(), *tf.random.uniform([2]).numpy()]
        drawn += [*tf.random.uniform([2], seed=3).numpy(), *noise().numpy()]
        return history, everything(model), drawn

    @tf.function
    def noise() -> Any:
        return tf.random.normal([2])

    with incarnation(FakeArena(), 0) as worker:
        history, weights, drawn = script(worker, None)
    for kill_after in (5, 2 * STEPS):
        arena = FakeArena()
        with incarnation(arena, 0) as worker, pytest.raises(Killed):
            script(worker, kill_after)
        with incarnation(arena, 1) as worker:
            history_again, weights_again, drawn_again = script(worker, None)
        assert worker.jumps == [0]
        assert history_again == history
        assert_same(weights_again, weights)
        assert drawn_again == drawn
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("options", [{}, {"seed": 4}], ids=["global", "seed"])
def test_images_that_are_changed_at_random_are_so_again(options: dict[str, int]) -> None:
    pytest.importorskip("scipy")

    def script(worker: FakeWorker, kill_after: int | None) -> Any:
        fresh_process()
        model = make_model([keras.layers.Flatten(), keras.layers.Dense(4)])
        fellows = [hvd_callbacks.FaultTolerance(3), Job(worker, kill_after)]
        model.fit(**images(**options), epochs=EPOCHS, verbose=0, callbacks=fellows)
        return model.history.history, everything(model)

    with incarnation(FakeArena(), 0) as worker:
        history, weights = script(worker, None)
    for kill_after in (5, STEPS + 1, 2 * STEPS + 5):
        arena = FakeArena()
        with incarnation(arena, 0) as worker, pytest.raises(Killed):
            script(worker, kill_after)
        with incarnation(arena, 1) as worker:
            history_again, weights_again = script(worker, None)
        assert worker.jumps == [0]
        assert history_again == history
        assert_same(weights_again, weights)


def test_data_that_is_read_by_several_workers_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    data = DATA["sequence"]()
    if KERAS_3:
        data["x"].workers = 2
    else:
        data["workers"] = 2
    with incarnation(FakeArena(), 0):
        make_model().fit(**data, verbose=0, callbacks=[hvd_callbacks.FaultTolerance()])
    [line] = capsys.readouterr().err.splitlines()
    assert "hvdft: fit reads its data (Reordered) by several workers" in line
