"""The variables of a session's graph that are in neither collection, global or local.

A model function may keep some out of checkpoints and of the initialization that all variables get:
averages, counters, a copy of the weights. They are found by the operations that hold them. As in
`other_variables`, a variable is in the loop's snapshots if its contents have changed since the
loop's beginning, whether the step changed it or a hook in a separate run.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from hvd_ft.system.say import say
from hvd_ft.tensorflow.made_variables import READING_OPS
from hvd_ft.tensorflow.other_variables import can_be_kept

_KINDS = ("VarHandleOp", "VariableV2", "Variable")
_READING = READING_OPS | {"VarIsInitializedOp", "IsVariableInitialized", "Identity"}


class OutsideVariables:
    """The outside variables of one training loop, which is about to begin.

    Args:
        session: with the variables' graph, complete.
        known: variables that are kept otherwise.
        tells: whether to report variables that cannot be kept.
    """

    def __init__(
        self, session: tf.compat.v1.Session, known: Iterable[tf.Variable], tells: bool
    ) -> None:
        self._found: dict[str, tuple[tf.Tensor, tf.Operation]] = {}  # how to read and to set it
        skipped = {variable.op.name for variable in known}
        operations = session.graph.get_operations()
        for held in (op for op in operations if op.type in _KINDS and op.name not in skipped):
            access = _access(held)
            if access is not None:
                self._found[held.name] = access
            elif tells and _is_written(held):
                _say_it_cannot_be_kept(held.name)
        self._before = self._read(session)  # of those that have not changed

    def changed(self, session: tf.compat.v1.Session) -> dict[str, np.ndarray]:
        """Returns copies of the contents of those that have changed, by name."""
        now = self._read(session)
        for name, content in now.items():
            if name in self._before and not _same(self._before[name], content):
                del self._before[name]
        return {
            name: content
            for name, content in now.items()
            if name not in self._before and can_be_kept(name, content)
        }

    def restore(self, session: tf.compat.v1.Session, contents: Mapping[str, np.ndarray]) -> None:
        """Sets the variables to the contents that `changed` has returned."""
        for name, content in contents.items():
            self._before.pop(name, None)
            if name not in self._found:
                say(
                    f"the snapshot has the variable {name}, which the restarted script has not "
                    "made: it must make the same on every start"
                )
                continue
            setter = self._found[name][1]
            session.run(setter, {setter.inputs[1]: np.array(content)})

    def _read(self, session: tf.compat.v1.Session) -> dict[str, np.ndarray]:
        tensors = {name: tensor for name, (tensor, _) in self._found.items()}
        try:
            contents = session.run(tensors) if tensors else {}
        except tf.errors.FailedPreconditionError:  # some have no content yet: which ones?
            contents = {}
            for name, tensor in tensors.items():
                try:
                    contents[name] = session.run(tensor)
                except tf.errors.FailedPreconditionError:
                    continue
        return {
            name: np.array(content, tensors[name].dtype.as_numpy_dtype)
            for name, content in contents.items()
        }


def _access(held: tf.Operation) -> tuple[tf.Tensor, tf.Operation] | None:
    """Returns the operations that read and set a variable and nothing else; None if one is missing.

    No operation can be added, because the graph is complete. But every variable is made with both:
    its value, and its initializer, whose input can be fed.
    """
    users = [op for op in held.outputs[0].consumers() if not op.control_inputs]
    setters = [
        op
        for op in users
        if op.type in ("AssignVariableOp", "Assign") and op.inputs[0] is held.outputs[0]
    ]
    if held.type == "VarHandleOp":
        values = [op.outputs[0] for op in users if op.type == "ReadVariableOp"]
    else:
        values = [held.outputs[0]]
    return (values[0], setters[0]) if values and setters else None


def _is_written(held: tf.Operation) -> bool:
    return any(op.type not in _READING for op in held.outputs[0].consumers())


def _same(before: Any, now: Any) -> bool:
    if before.dtype.hasobject or before.shape != now.shape:
        return before.shape == now.shape and bool(before.tolist() == now.tolist())
    return bool(before.tobytes() == now.tobytes())


def _say_it_cannot_be_kept(name: str) -> None:
    say(
        f"the variable {name} changes in training, and is neither read nor set but in the step, so "
        "no snapshot holds it and it will differ after a restart: make it with tf.Variable or "
        "tf.compat.v1.get_variable"
    )
