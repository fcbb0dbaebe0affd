"""The variables that a training loop changes besides those that a model or a State names.

Nobody has to name them. A variable whose content has changed since the loop's beginning belongs to
the loop, whether the traced step, a callback or the script changed it. A variable that nothing has
changed is as the script makes it, in a restarted process too.
"""

import functools
import gc
from collections.abc import Iterable, Mapping, Set
from typing import Any

import numpy as np
import tensorflow as tf

from hvd_ft.system.say import say
from hvd_ft.tensorflow import made_variables
from hvd_ft.tensorflow.averages import restore_shadows, shadows
from hvd_ft.tensorflow.made_variables import Identity
from hvd_ft.tensorflow.rng import rng_variables
from hvd_ft.worker import training_loop

Contents = tuple[dict[str, np.ndarray], dict[str, Any]]  # arrays and values

_PREFIX = "other:"  # of their names among a snapshot's arrays
_SMALL_BYTES = 1 << 12  # contents that are compared, not only their places in memory


class OtherVariables:
    """The other variables of one training loop, which has just begun.

    Args:
        known: variables that are kept otherwise.
    """

    def __init__(self, known: Iterable[tf.Variable]) -> None:
        # As long as memory is referenced, TensorFlow writes a variable's new content elsewhere.
        self._before = self.contents(known)  # of those that have not changed
        self._phase = training_loop.phase()
        self._made = 0  # variables made in the loop, at the latest snapshot

    def contents(self, known: Iterable[tf.Variable]) -> dict[Identity, np.ndarray]:
        """Returns the contents of all variables but the known ones, without copying them."""
        found = {identity: _content(variable) for identity, variable in _unknown(known)}
        return {identity: content for identity, content in found.items() if content is not None}

    def state(
        self, known: Iterable[tf.Variable], common: Iterable[tf.Variable]
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Returns the contents of those that have changed, for a snapshot: arrays and values.

        Args:
            known: variables that are kept otherwise, by now.
            common: variables that all ranks change in the same way. All of them are returned, as
                arrays, which ranks share; the others as values, which are a rank's own.
        """
        now = self.contents(known)
        made = sum(identity.phase == self._phase for identity in now)
        if made > self._made:
            gc.collect()  # such as an earlier epoch's metrics, which a restart does not make again
            now = self.contents(known)
            made = sum(identity.phase == self._phase for identity in now)
        self._made = made
        changed = {
            identity: content
            for identity, content in now.items()
            if identity not in self._before or not _same(self._before[identity], content)
        }
        for identity in changed.keys() & self._before.keys():
            del self._before[identity]  # it may be large
        of_common = {made_variables.made.identity(variable) for variable in common}
        together = [identity for identity in now if identity in of_common]
        arrays = {f"{_PREFIX}{identity}": now[identity] for identity in together}
        own = {**made_variables.made.awaited, **changed}
        values = {
            str(identity): content
            for identity, content in own.items()
            if identity not in together and can_be_kept(identity.kind.partition(" ")[0], content)
        }
        averages = shadows({*values, *map(str, together)})
        return arrays, {"contents": values, "averages": averages}

    def restore(self, kept: "KeptOthers", left_out: Set[Identity] = frozenset()) -> None:
        """Sets the variables to their earlier contents; see MadeVariables.restore.

        Args:
            kept: of a snapshot.
            left_out: variables that are right already.
        """
        for identity in kept.contents:
            self._before.pop(identity, None)
        averaged = [Identity.parse(of) for pairs in kept.averages.values() for of, _ in pairs]
        made_variables.made.restore(kept.contents, left_out, averaged)
        restore_shadows(kept.averages, kept.contents)

    def changed_since(
        self, contents: Mapping[Identity, np.ndarray], known: Iterable[tf.Variable]
    ) -> set[Identity]:
        """Returns the variables whose contents differ from those that `contents` returned."""
        now = self.contents(known)
        both = contents.keys() & now.keys()
        return {identity for identity in both if not _same(contents[identity], now[identity])}


def known_only(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns a snapshot's arrays without those of `OtherVariables.state`."""
    return {name: arrays[name] for name in arrays if not name.startswith(_PREFIX)}


class KeptOthers:
    """The contents of other variables in a snapshot.

    Args:
        arrays: those that `OtherVariables.state` has returned, and more.
        values: those that it has returned.

    Attributes:
        contents: of the variables.
        averages: as `shadows` returns them.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], values: Mapping[str, Any]) -> None:
        common = {name.removeprefix(_PREFIX): name for name in arrays if name.startswith(_PREFIX)}
        self.contents = {Identity.parse(text): arrays[name] for text, name in common.items()}
        own = values.get("contents", {})
        self.contents |= {Identity.parse(text): array for text, array in own.items()}
        self.averages = values.get("averages", {})


def identities(arrays: Mapping[str, np.ndarray], values: Mapping[str, Any]) -> set[str]:
    """Returns the identities of the variables that `OtherVariables.state` has returned."""
    return {*values["contents"], *(name.removeprefix(_PREFIX) for name in arrays)}


def _unknown(known: Iterable[tf.Variable]) -> list[tuple[Identity, tf.Variable]]:
    skipped = {id(variable) for variable in (*known, *rng_variables())}
    return [each for each in made_variables.made.alive() if id(each[1]) not in skipped]


def _content(variable: tf.Variable) -> np.ndarray | None:
    if variable.dtype in (tf.resource, tf.variant):
        return None
    try:
        return np.asarray(variable.read_value())
    except tf.errors.FailedPreconditionError:  # it has no content yet
        return None


def _same(before: np.ndarray, now: np.ndarray) -> bool:
    """Returns whether a variable has not been written; `before` is still referenced."""
    if before.shape != now.shape:
        return False
    if before.dtype.hasobject:
        return bool(before.tolist() == now.tolist())
    if now.nbytes <= _SMALL_BYTES:
        return before.tobytes() == now.tobytes()
    return before.ctypes.data == now.ctypes.data


def can_be_kept(name: str, content: np.ndarray) -> bool:
    """Returns whether a snapshot can hold this content of a variable; says once if it cannot."""
    if not content.dtype.hasobject:
        return True
    _say_it_cannot_be_kept(name)
    return False


@functools.cache
def _say_it_cannot_be_kept(name: str) -> None:
    say(
        f"the variable {name} changes in training and contains texts, which no snapshot holds, so "
        "it will differ after a restart: keep numbers in it"
    )
