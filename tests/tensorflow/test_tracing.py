"""Horovod's code is traced as it is, into the same graph; a restarted fit's step is traced once."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow", reason="Horovod is not built")

from hvd_ft.tensorflow.keras_api import KERAS_3  # noqa: E402
from hvd_ft.tensorflow.variables import (  # noqa: E402
    fit_variables,
    make_step_variables,
    model_variables,
)

keras = tf.keras

OPS = """
import sys, collections
import tensorflow as tf
if sys.argv[1] == "ours":
    import hvd_ft.tensorflow as hvd
else:
    import horovod.tensorflow as hvd
from tensorflow.python.autograph.impl import conversion
hvd.init()
weights = [tf.Variable(tf.ones([2, 3])), tf.Variable(tf.ones([3]))]
table = tf.Variable(tf.ones([4, 3]))

@tf.function
def step(x, rows):
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = tf.reduce_sum(x @ weights[0] + weights[1]) + tf.reduce_sum(tf.gather(table, rows))
    gradients = tape.gradient(loss, [*weights, table])
    return [tf.convert_to_tensor(g) for g in gradients] + [hvd.allreduce(loss, op=hvd.Sum)]

def ops(graph):
    found = collections.Counter(op.type for op in graph.get_operations())
    for name in graph._functions:
        found.update(node.op for node in graph._functions[name].cached_definition.node_def)
    return found

graph = step.get_concrete_function(tf.ones([5, 2]), tf.constant([1, 2])).graph
print(conversion.is_allowlisted(hvd.allreduce), sorted(ops(graph).items()))
"""


def test_horovods_code_is_left_alone_and_makes_the_same_graph() -> None:
    both = [
        subprocess.Popen([sys.executable, "-c", OPS, whose], stdout=subprocess.PIPE, text=True)
        for whose in ("ours", "stock")
    ]
    outs = [process.communicate(timeout=600)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    lines = [out.splitlines()[-1].split(maxsplit=1) for out in outs]
    assert [converted for converted, _ in lines] == ["True", "False"]
    assert lines[0][1] == lines[1][1]
    assert "HorovodAllreduce" in lines[0][1]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    keras.backend.clear_session()
    yield
    keras.backend.clear_session()


class Counting(keras.layers.Layer):
    """Counts how often it is traced."""

    traces = 0

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        Counting.traces += 1
        return inputs


def names_after_tracing(first: bool) -> tuple[list[str], int]:
    keras.backend.clear_session()
    layers = [keras.layers.Dense(3, input_shape=(2,)), keras.layers.BatchNormalization()]
    model = keras.Sequential([*layers, Counting(), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(), "mse", metrics=["mae", "mse"])
    iterator = iter(tf.data.Dataset.from_tensors((tf.ones([4, 2]), tf.ones([4, 1]))))
    step = model.make_train_function()
    if first:
        make_step_variables(model, iterator)
    Counting.traces = 0
    step.get_concrete_function(iterator)
    traces = Counting.traces
    return [v.name for v in (*model_variables(model), *fit_variables(model))], traces


@pytest.mark.skipif(KERAS_3, reason="Keras 3's step is traced as a whole")
def test_a_step_whose_variables_are_there_is_traced_once() -> None:
    plain, traces = names_after_tracing(first=False)
    assert traces == 2
    assert names_after_tracing(first=True) == (plain, 1)
