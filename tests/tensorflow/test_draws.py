"""Random operations under an agent: they count in a variable, and are the same otherwise."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow", reason="Horovod is not built")

from hvd_ft.tensorflow.draws import draws, keep_draws, restore_draws  # noqa: E402
from hvd_ft.tensorflow.keras_api import KERAS_3  # noqa: E402

random = tf.random
SHAPE = [2000]


@pytest.fixture(autouse=True)
def _kept() -> None:
    keep_draws()
    random.set_seed(1)


# Each with the mean that its values have.
DRAWS: dict[str, tuple[Callable[[], Any], float]] = {
    "uniform": (lambda: random.uniform(SHAPE), 0.5),
    "half": (lambda: random.uniform(SHAPE, dtype=tf.float16), 0.5),
    "integers": (lambda: random.uniform(SHAPE, 0, 9, tf.int32), 4),
    "normal": (lambda: random.normal(SHAPE, 3, 0.1), 3),
    "truncated": (lambda: random.truncated_normal(SHAPE, 3, 0.1), 3),
    "bounded": (
        lambda: tf.raw_ops.Identity(
            input=tf.compat.v1.distributions.Normal(2.0, 0.1).sample(SHAPE, seed=4)
        ),
        2,
    ),
    "gamma": (lambda: random.gamma([1000], [2.0, 2.0], 4.0), 0.5),
    "poisson": (lambda: random.poisson([1000], [3.0, 3.0]), 3),
    "categories": (lambda: random.categorical(tf.zeros([2, 5]), 1000), 2),
    "order": (lambda: random.shuffle(tf.range(2000)), 999.5),
    "dropout": (lambda: tf.nn.dropout(tf.ones(SHAPE), 0.5), 1),
    "image": (lambda: tf.image.random_crop(tf.ones([60, 60, 1]), [50, 40, 1]), 1),
    "seeded": (lambda: random.uniform(SHAPE, seed=9), 0.5),
}


@pytest.mark.parametrize("traced", [True, False], ids=["traced", "eager"])
@pytest.mark.parametrize("name", DRAWS)
def test_what_was_drawn_is_drawn_again(name: str, traced: bool) -> None:
    make, mean = DRAWS[name]
    draw = tf.function(make) if traced else make
    draw()  # another process has drawn as often before, whatever it did otherwise
    kept = draws()
    if not traced:
        random.set_seed(1)
    first, second = draw().numpy(), draw().numpy()
    restore_draws(kept)
    if not traced:
        random.set_seed(1)  # as rng.py restores it
    np.testing.assert_array_equal(draw().numpy(), first)
    np.testing.assert_array_equal(draw().numpy(), second)
    if name != "image":
        assert not np.array_equal(first, second)
    assert float(np.mean(first, dtype=np.float64)) == pytest.approx(mean, rel=0.1)


def test_two_operations_draw_different_numbers() -> None:
    @tf.function
    def both() -> Any:
        return random.uniform([4]), random.uniform([4])

    assert not np.array_equal(*both())


def test_a_seed_makes_the_sequence_and_none_makes_another_in_each_process() -> None:
    @tf.function
    def seeded() -> Any:
        return random.uniform([4], seed=3)

    values = []
    for key in (1, 2):
        restore_draws(np.array([key, 5]))
        values.append((seeded().numpy(), tf.random.uniform([4], seed=3).numpy()))
    np.testing.assert_array_equal(values[0], values[1])


def test_data_and_graphs_of_sessions_draw_as_ever() -> None:
    kept = draws()
    data = tf.data.Dataset.range(3).map(lambda _: tf.nn.dropout(tf.ones([]), 0.5))
    assert len(list(data)) == 3
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        drawn = random.uniform([2])
        session.run(drawn)
        assert "RandomUniform" in {op.type for op in session.graph.get_operations()}
    np.testing.assert_array_equal(draws(), kept)


class Noisy(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([64])])
    def __call__(self, x: Any) -> Any:
        return tf.nn.dropout(x, 0.5)


def test_functions_that_draw_can_be_saved(tmp_path: Path) -> None:
    module = Noisy()
    traced = module.__call__.get_concrete_function()  # with the counter in it
    tf.saved_model.save(module, str(tmp_path / "module"), signatures=traced)
    [loaded] = tf.saved_model.load(str(tmp_path / "module")).signatures.values()
    results = [next(iter(loaded(tf.ones([64])).values())) for _ in range(2)]
    assert not np.array_equal(*results)
    if KERAS_3:
        return  # its layers draw by generators of their own
    model = tf.keras.Sequential([tf.keras.layers.Dropout(0.5, input_shape=(64,))])
    model(tf.ones([1, 64]), training=True)
    model.save(tmp_path / "model")
    assert all("draws" not in name for name in tf.train.TrackableView(model).children(model))
    loaded = tf.keras.models.load_model(tmp_path / "model")
    assert loaded(tf.ones([1, 64])).shape == (1, 64)
    loaded.save(tmp_path / "again")  # it has that job's counter, and may need this one's
    assert tf.keras.models.load_model(tmp_path / "again")(tf.ones([1, 64])).shape == (1, 64)


def test_a_compiled_function_draws() -> None:
    compiled = tf.function(lambda: tf.nn.dropout(tf.ones([64]), 0.5), jit_compile=True)
    kept = draws()
    first, second = compiled().numpy(), compiled().numpy()
    assert not np.array_equal(first, second)
    restore_draws(kept)
    np.testing.assert_array_equal(compiled().numpy(), first)


def test_devices_and_threads_can_be_chosen_after_init() -> None:
    """As Horovod's examples do, with the local rank."""
    code = """if True:
        import tensorflow as tf
        from hvd_ft.tensorflow.draws import draws, keep_draws, restore_draws
        keep_draws()
        restore_draws(draws() + [0, 4])
        tf.config.threading.set_inter_op_parallelism_threads(2)
        tf.config.set_visible_devices(tf.config.list_physical_devices("CPU"), "CPU")
        before = draws()[1]
        tf.random.uniform([])
        print(before, draws()[1])
    """
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.stdout == "4 5\n", done.stderr
