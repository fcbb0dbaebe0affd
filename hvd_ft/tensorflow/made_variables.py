"""The tf.Variables that this process makes, each with an identity that a restarted process finds.

TensorFlow has no list of them. A training loop changes more variables than those of its model:
shadows of averaged weights, metrics and counters, in objects that nothing tracks. So this module
records every creation. A variable is identified by its *kind* (name, type, shape, and the line of
the script that made it, or that a traced function did), by the *phase* in which it was made (before
a training loop, in it, between two), and by its number among those.

A restarted process enters a loop in the middle, so a traced function may make its variables later
than before. Such a variable is *awaited*: when it is made, it gets its earlier content and takes
over the identity. A variable that the script itself makes in a loop may be new in each epoch, so it
is restored only if it exists where the loop is entered.

TensorFlow 2.15 has no public names for this.
"""

import functools
import sys
import weakref
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

import horovod
import numpy as np
import tensorflow as tf
from tensorflow.python.data.ops import structured_function
from tensorflow.python.framework import func_graph, ops
from tensorflow.python.ops import resource_variable_ops, variables

from hvd_ft.tensorflow import keras_api
from hvd_ft.worker import training_loop

_TRACED = "traced"  # instead of a line
_FOREIGN = tuple(
    f"{folder}/"
    for folder in (
        *(Path(file).parent for file in (tf.__file__, horovod.__file__)),
        *(keras_api.FOLDER, Path(__file__).parents[1]),
    )
)
CHANGING_TABLES = ("LookupTableInsert", "LookupTableRemove", "LookupTableImport")
READING_OPS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape"})


class Identity(NamedTuple):
    """What identifies a variable in all processes of a rank."""

    phase: int
    kind: str
    number: int

    @classmethod
    def parse(cls, text: str) -> "Identity":
        """Reads what `str` has returned."""
        phase, number, kind = text.split("/", 2)
        return cls(int(phase), kind, int(number))

    def __str__(self) -> str:
        return f"{self.phase}/{self.number}/{self.kind}"

    @property
    def looks(self) -> str:
        """Name, type and shape."""
        return self.kind.rpartition(" ")[0]

    @property
    def by_trace(self) -> bool:
        """Whether a traced function made it."""
        return self.kind.endswith(f" {_TRACED}")


class MadeVariables:
    """The eager variables of this process that are alive."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Identity, weakref.ref[tf.Variable]]] = {}  # by handle
        self._counts: Counter[tuple[int, str]] = Counter()
        self._awaited: dict[Identity, np.ndarray] = {}
        self._of_data: set[int] = set()  # handles
        self._next: Identity | None = None

    def note(self, variable: Any) -> None:
        """Notes a variable that has just been made, and gives it the content it is awaited with."""
        if (known := self._found.get(id(variable.handle))) is not None and known[1]() is not None:
            return  # another wrapper of the same variable
        name, shape, dtype = variable.name, variable.shape, variable.dtype.name
        kind = f"{name} {dtype}{shape} {_maker()}"
        identity, self._next = self._next or self._take_over(kind), None
        key = (identity.phase, identity.kind)
        self._counts[key] = max(self._counts[key], identity.number + 1)
        self._of_data.discard(id(variable.handle))  # of a variable that had this one's place
        self._found[id(variable.handle)] = identity, weakref.ref(variable)
        if (content := self._awaited.pop(identity, None)) is not None:
            with tf.init_scope():
                variable.assign(content)

    def _take_over(self, kind: str) -> Identity:
        phase = training_loop.phase()
        awaited = [identity for identity in self._awaited if identity.kind == kind]  # traced
        same = [identity for identity in awaited if identity.phase == phase]
        return (same or awaited or [Identity(phase, kind, self._counts[phase, kind])])[0]

    def note_data(self, function: Any) -> None:
        """Notes the variables that a function of tf.data writes: they go with the data."""
        writes = _written_captures(function)
        self._of_data |= {id(handle) for handle in writes}

    def alive(self) -> list[tuple[Identity, tf.Variable]]:
        """Returns the variables in the order of their creation."""
        found = {key: (identity, ref()) for key, (identity, ref) in list(self._found.items())}
        self._found = {key: self._found[key] for key in found if found[key][1] is not None}
        return [
            (identity, variable) for identity, variable in found.values() if variable is not None
        ]

    def of_data(self) -> set[Identity]:
        """Returns the variables that data writes; drawing the data again restores them."""
        return {self._found[key][0] for key in self._of_data & self._found.keys()}

    def of_handle(self, handle: Any) -> tf.Variable | None:
        """Returns the variable of a resource; None if the resource is not a variable."""
        found = self._found.get(id(handle))
        variable = None if found is None else found[1]()
        return variable if variable is not None and variable.handle is handle else None

    def identity(self, variable: Any) -> Identity | None:
        """Returns a variable's identity; None if it was made before creations were recorded."""
        found = self._found.get(id(variable.handle))
        return None if found is None or found[1]() is not variable else found[0]

    def again(self, identity: Identity, content: np.ndarray, trainable: bool) -> tf.Variable:
        """Returns a variable that an earlier process of this rank had; makes it unless it exists.

        Args:
            identity: the variable's identity.
            content: its content.
            trainable: whether gradient tapes watch it.
        """
        if (existing := dict(self.alive()).get(identity)) is not None:
            return existing
        self._awaited.pop(identity, None)
        name = identity.kind.partition(" ")[0].rpartition(":")[0]
        self._next = identity
        return tf.Variable(np.array(content), trainable=trainable, name=name)

    @property
    def awaited(self) -> Mapping[Identity, np.ndarray]:
        """The contents of earlier variables that have not been made again."""
        return self._awaited

    def restore(
        self,
        contents: Mapping[Identity, np.ndarray],
        left_out: Set[Identity],
        named: Iterable[Identity] = (),
    ) -> None:
        """Sets variables to their earlier contents, at once or when they are made.

        Variables that were awaited before are not awaited any more: they belong to a loop that is
        over.

        Args:
            contents: by identity.
            left_out: variables that are right already.
            named: other variables that the earlier process knew by these identities.
        """
        self._take_identities([*named, *contents])
        existing = dict(self.alive())
        self._awaited = {}
        for identity, content in contents.items():
            variable = existing.get(identity)
            if variable is None:
                if identity.by_trace:
                    self._awaited[identity] = np.array(content)
            elif identity not in left_out:
                variable.assign(np.array(content))

    def _take_identities(self, identities: Sequence[Identity]) -> None:
        """Gives variables made in this loop the identities of the variables that they replace."""
        phase = training_loop.phase()
        new = [identity for identity, _ in self.alive() if identity.phase == phase]
        old = [identity for identity in dict.fromkeys(identities) if identity.phase == phase]
        # The script's own: its latest of a line stand for the latest, such as of this epoch.
        for kind in {identity.kind for identity in new if not identity.by_trace}:
            pairs = zip(
                reversed([identity for identity in new if identity.kind == kind]),
                reversed([identity for identity in old if identity.kind == kind]),
                strict=False,
            )
            self._rename(dict(pairs))
        # An eager step is traced where it is restored.
        new = [identity for identity, _ in self.alive() if identity.phase == phase]
        free = [identity for identity in new if identity not in old and identity.by_trace]
        for identity in old:
            stand_in = [each for each in free if each.looks == identity.looks]
            if identity not in new and stand_in:
                free.remove(stand_in[0])
                self._rename({stand_in[0]: identity})

    def _rename(self, identities: Mapping[Identity, Identity]) -> None:
        for key, (identity, variable) in list(self._found.items()):
            if (other := identities.get(identity)) is not None:
                self._found[key] = other, variable
                count = (other.phase, other.kind)
                self._counts[count] = max(self._counts[count], other.number + 1)


made = MadeVariables()


def restart() -> None:
    """Forgets all variables, as in a new process; for tests."""
    global made
    made = MadeVariables()


@functools.cache
def note_variables() -> None:
    """Notes all variables that are made from now on."""
    make = variables.VariableMetaclass.__call__

    @functools.wraps(make)
    def noted(cls: Any, *arguments: Any, **more: Any) -> Any:
        variable = make(cls, *arguments, **more)
        if (
            isinstance(variable, resource_variable_ops.BaseResourceVariable)
            and not isinstance(variable, resource_variable_ops._UnreadVariable)
            and isinstance(variable.handle, ops.EagerTensor)
        ):
            made.note(variable)
        return variable

    variables.VariableMetaclass.__call__ = noted
    wrap = structured_function.StructuredFunctionWrapper.__init__

    @functools.wraps(wrap)
    def noted_data(self: Any, *arguments: Any, **more: Any) -> None:
        wrap(self, *arguments, **more)
        made.note_data(self.function)

    structured_function.StructuredFunctionWrapper.__init__ = noted_data


def changes_table(step: Any) -> bool:
    """Returns whether a traced step changes a lookup table, which no snapshot can hold."""
    if not hasattr(step, "_list_all_concrete_functions"):
        return False
    graphs = [function.graph.as_graph_def() for function in step._list_all_concrete_functions()]
    functions = [function for graph in graphs for function in graph.library.function]
    nodes = [node for graph in graphs for node in graph.node]
    nodes += [node for function in functions for node in function.node_def]
    return any(node.op.startswith(CHANGING_TABLES) for node in nodes)


def step_variables(step: Any) -> list[tf.Variable]:
    """Returns the variables that a traced step captures; none if it is not traced."""
    if not hasattr(step, "_list_all_concrete_functions"):  # run_eagerly
        return []
    captured = [
        outside
        for function in step._list_all_concrete_functions()
        for outside, _ in function.graph.captures
    ]
    found = {id(handle): made.of_handle(handle) for handle in captured}
    return [variable for variable in found.values() if variable is not None]


def _maker() -> str:
    """Returns the line of the script that makes a variable, or that a traced function does."""
    frame: Any = sys._getframe(2)
    line = ""
    while frame is not None:
        file = frame.f_code.co_filename
        if file == func_graph.__file__:
            return _TRACED
        if not line and not file.startswith((*_FOREIGN, "<")):
            line = f"{Path(file).name}:{frame.f_lineno}"
        frame = frame.f_back
    return line


def _written_captures(function: Any) -> list[Any]:
    """Returns the resources that a function captures and does not only read."""
    graph = getattr(function, "graph", None)
    if graph is None:
        return []
    return [
        outside
        for outside, inside in graph.captures
        if inside.dtype == tf.resource
        and any(consumer.type not in READING_OPS for consumer in inside.consumers())
    ]
