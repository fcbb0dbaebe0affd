"""The variables of a session's graph, and the operations that draw data in its runs.

TensorFlow can save an iterator of tf.data, but not the state of stateful operations in the
pipeline, and for shuffle() it saves the whole buffer. So a restarted process repeats the draws,
which is exact and needs little memory.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hvd_ft.errors import HvdFtError
from hvd_ft.system.say import say
from hvd_ft.tensorflow.data import other_data
from hvd_ft.tensorflow.variables import byte_count, kinds, matched, unique
from hvd_ft.worker.divergence_rule import Kind

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
        both = (keys.GLOBAL_VARIABLES, keys.LOCAL_VARIABLES)
        self._variables = unique(*(graph.get_collection(kind) for kind in both))
        # Metrics, and Horovod's sums of gradients that are not exchanged yet.
        self._own = graph.get_collection(keys.LOCAL_VARIABLES)
        self._weights = graph.get_collection(keys.TRAINABLE_VARIABLES)

    @property
    def all(self) -> Sequence[tf.Variable]:
        """The variables themselves."""
        return self._variables

    @property
    def byte_count(self) -> int:
        """Bytes of all variables together; variables of unknown shape count as 0."""
        return byte_count(_sized(self._variables))

    @property
    def trainable_byte_count(self) -> int:
        """Bytes of the trainable variables; variables of unknown shape count as 0."""
        return byte_count(_sized(unique(self._weights)))

    @property
    def kinds(self) -> dict[str, Kind]:
        """The kind of each variable (divergence_rule.py), by the names that `read` gives."""
        return kinds(self._variables, self._weights, self._own)

    def read(self, session: tf.compat.v1.Session) -> dict[str, np.ndarray]:
        """Returns copies of the variables' contents by number and name."""
        arrays = session.run(self._variables)
        return {
            f"{number}:{variable.name}": np.asarray(array)
            for number, (variable, array) in enumerate(zip(self._variables, arrays, strict=True))
        }

    def restore(self, session: tf.compat.v1.Session, arrays: Mapping[str, np.ndarray]) -> None:
        """Sets the variables to the contents that `read` returned.

        Raises:
            HvdFtError: the script has created other variables than before.
        """
        for variable, array in matched(self._variables, arrays):
            _load(session, variable, array)

    def assign(self, session: tf.compat.v1.Session, name: str, array: np.ndarray) -> None:
        """Sets the variable that has this name in what `read` returned."""
        _load(session, self._variables[int(name.partition(":")[0])], array)


def _load(session: tf.compat.v1.Session, variable: tf.Variable, array: np.ndarray) -> None:
    # Like Variable.load: the graph is complete, and this adds no operation to it.
    session.run(variable.initializer, {variable.initializer.inputs[1]: np.array(array)})


def _sized(variables: list[tf.Variable]) -> list[tf.Variable]:
    return [each for each in variables if each.shape.is_fully_defined()]


class Draws:
    """Counts the runs of each operation that advances by one in every run: data, random numbers.

    Args:
        graph: complete.
    """

    def __init__(self, graph: tf.Graph) -> None:
        self.counts: Counter[str] = Counter()  # by the operation's name
        self._graph = graph
        self._found: dict[tuple[str, ...], list[str]] = {}  # by the fetches

    def add(self, fetches: Any) -> None:
        """Counts a run.

        Args:
            fetches: of the run, in the forms that `Session.run` accepts.
        """
        items = tf.nest.flatten(fetches, expand_composites=True)
        operations = [_operation(self._graph, item) for item in items]
        names = tuple(op.name for op in operations)
        if names not in self._found:
            self._found[names] = _draws(operations)
        self.counts.update(self._found[names])

    def drop(self, session: tf.compat.v1.Session, counts: Mapping[str, int]) -> None:
        """Repeats an earlier process's draws, and drops the results.

        Raises:
            HvdFtError: the script has other operations, or its data ends before that.
        """
        operations = {op.name: op for op in self._graph.get_operations() if op.name in counts}
        if missing := [name for name in counts if name not in operations]:
            raise HvdFtError(
                f"the restarted script has no operation {missing[0]}, with which it drew before: "
                "it must make the same on every start"
            )
        left = self.counts = Counter(counts)
        try:
            while left:
                session.run([operations[name] for name in left])
                left = left - Counter(list(left))
        except tf.errors.OutOfRangeError as error:
            raise other_data(max(counts.values())) from error


def _draws(operations: list[tf.Operation]) -> list[str]:
    """Returns the names of the drawing operations among those that these operations run."""
    step = _ancestors(operations)
    names = [op.name for op in step if op.type in _DATA]
    random = [op for op in step if _is_random(op)]
    # Running one that depends on a collective would be a collective.
    kept = [op for op in random if not any(map(_is_collective, _ancestors([op])))]
    if unkept := [op.name for op in random if op not in kept]:
        say(
            f"the random numbers of {', '.join(unkept)} depend on a collective, so they "
            "will differ after a restart"
        )
    return [*names, *(op.name for op in kept)]


def _is_collective(op: tf.Operation) -> bool:
    return bool(op.type.startswith("Horovod"))


def _is_random(op: tf.Operation) -> bool:
    # Operations of a tf.random.Generator keep their state in a variable.
    stateful = op.op_def is not None and op.op_def.is_stateful
    return stateful and (op.type.startswith("Random") or op.type in _RANDOM)


def _operation(graph: tf.Graph, item: Any) -> tf.Operation:
    element = graph.as_graph_element(item)
    return element if isinstance(element, tf.Operation) else element.op


def _ancestors(operations: Iterable[tf.Operation]) -> list[tf.Operation]:
    """Returns all operations that these ones need, themselves included, in a fixed order."""
    found: dict[str, tf.Operation] = {}
    open_ends = list(operations)
    while open_ends:
        op = open_ends.pop()
        if op.name not in found:
            found[op.name] = op
            open_ends += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
    return list(found.values())
