"""What a session's graph consists of for a snapshot: its variables, and what a step draws.

TensorFlow can save an iterator of tf.data, but not what stateful operations in the pipeline have
drawn, and of shuffle() it saves the whole buffer. So a restarted process draws again what it had
drawn: exact, and small.
"""

import sys
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

from hvd_ft.tensorflow.data import other_data
from hvd_ft.tensorflow.variables import matched, unique

_DATA = (
    *("IteratorGetNext", "IteratorGetNextSync", "IteratorGetNextAsOptional"),
    *("QueueDequeueV2", "QueueDequeueManyV2", "QueueDequeueUpToV2"),
)
_RANDOM = ("Multinomial", "TruncatedNormal", "ParameterizedTruncatedNormal", "SampleDistortedBox")


class SessionVariables:
    """A graph's global and local variables.

    Args:
        graph: complete.
    """

    def __init__(self, graph: tf.Graph) -> None:
        keys = tf.compat.v1.GraphKeys
        kinds = (keys.GLOBAL_VARIABLES, keys.LOCAL_VARIABLES)
        self._variables = unique(*(graph.get_collection(kind) for kind in kinds))

    def read(self, session: tf.compat.v1.Session) -> dict[str, np.ndarray]:
        """Returns the variables' contents by number and name; they never change."""
        arrays = session.run(self._variables)
        return {
            # An old-style variable is updated in place, in the memory that the session returns.
            f"{number}:{variable.name}": np.asarray(array) if _is_new(variable) else np.array(array)
            for number, (variable, array) in enumerate(zip(self._variables, arrays, strict=True))
        }

    def restore(self, session: tf.compat.v1.Session, arrays: Mapping[str, np.ndarray]) -> None:
        """Sets the variables to what `read` returned.

        Raises:
            HvdFtError: the script has made other variables than before.
        """
        for variable, array in matched(self._variables, arrays):
            # As Variable.load does: the graph is complete, and this needs no operation more.
            session.run(variable.initializer, {variable.initializer.inputs[1]: np.array(array)})


class StepDraws:
    """The operations of a step that go on by one with every run: data and random numbers.

    Args:
        graph: complete.
        fetches: what a step runs, in the forms that `Session.run` takes.
    """

    def __init__(self, graph: tf.Graph, fetches: Any) -> None:
        items = tf.nest.flatten(fetches, expand_composites=True)
        step = _ancestors(_operation(graph, item) for item in items)
        self._operations = [op for op in step if op.type in _DATA]
        unkept = []
        for op in step:
            if not _is_random(op):
                continue
            if any(before.type.startswith("Horovod") for before in _ancestors([op])):
                unkept.append(op.name)  # to run it were a collective
            else:
                self._operations.append(op)
        if unkept:
            print(
                f"hvd_ft: the random numbers of {', '.join(unkept)} depend on a collective, so "
                "after a restart they are others than they would have been",
                file=sys.stderr,
            )

    def drop(self, session: tf.compat.v1.Session, steps: int) -> None:
        """Draws for so many steps and drops what was drawn.

        Raises:
            HvdFtError: the data ends before that.
        """
        if not self._operations:
            return
        try:
            for _ in range(steps):
                session.run(self._operations)
        except tf.errors.OutOfRangeError as error:
            raise other_data(steps) from error


def _is_new(variable: tf.Variable) -> bool:
    return isinstance(variable, resource_variable_ops.BaseResourceVariable)


def _is_random(op: tf.Operation) -> bool:
    # A tf.random.Generator's operations have their state in a variable.
    stateful = op.op_def is not None and op.op_def.is_stateful
    return stateful and (op.type.startswith("Random") or op.type in _RANDOM)


def _operation(graph: tf.Graph, item: Any) -> tf.Operation:
    element = graph.as_graph_element(item)
    return element if isinstance(element, tf.Operation) else element.op


def _ancestors(operations: Iterable[tf.Operation]) -> list[tf.Operation]:
    """Returns what has to run for these operations, themselves included, in a fixed order."""
    found: dict[str, tf.Operation] = {}
    open_ends = list(operations)
    while open_ends:
        op = open_ends.pop()
        if op.name not in found:
            found[op.name] = op
            open_ends += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
    return list(found.values())
