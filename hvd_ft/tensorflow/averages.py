"""`tf.train.ExponentialMovingAverage` objects: where a restarted process has not averaged yet.

Such an object makes the shadow of a variable when it first averages the variable, and keeps its
shadows in a dictionary that nothing tracks. So a restarted process that enters a loop in the
middle, or skips a loop that is over, gets the shadows from the snapshot.
"""

import functools
import weakref
from collections import Counter
from collections.abc import Mapping, Set
from typing import Any

import numpy as np
import tensorflow as tf

from hvd_ft.tensorflow import made_variables
from hvd_ft.tensorflow.made_variables import Identity
from hvd_ft.worker import training_loop

_objects: "weakref.WeakKeyDictionary[Any, str]" = weakref.WeakKeyDictionary()  # their identities
_counts: Counter[str] = Counter()


def restart() -> None:
    """Forgets all objects, as in a new process; for tests."""
    _objects.clear()
    _counts.clear()


@functools.cache
def note_averages() -> None:
    """Notes all such objects that are made from now on."""
    begin = tf.train.ExponentialMovingAverage.__init__

    @functools.wraps(begin)
    def noted(self: Any, *arguments: Any, **more: Any) -> None:
        begin(self, *arguments, **more)
        kind = f"{training_loop.phase()}/{self.name}"
        _objects[self] = f"{kind}/{_counts[kind]}"
        _counts[kind] += 1

    tf.train.ExponentialMovingAverage.__init__ = noted


def shadows(kept: Set[str]) -> dict[str, list[list[str]]]:
    """Returns the identities of variables and their shadows, by object, for a snapshot.

    Args:
        kept: identities of the variables whose contents the snapshot has.
    """
    made = made_variables.made
    found: dict[str, list[list[str]]] = {}
    for average, name in list(_objects.items()):
        pairs = [(made.identity(of.deref()), made.identity(v)) for of, v in _pairs(average)]
        found[name] = [[str(of), str(own)] for of, own in pairs if of and own and str(own) in kept]
    return {name: pairs for name, pairs in found.items() if pairs}


def restore_shadows(
    found: Mapping[str, list[list[str]]], contents: Mapping[Identity, np.ndarray]
) -> None:
    """Gives objects the shadows that they have not made yet.

    Args:
        found: as `shadows` has returned it.
        contents: of the variables.
    """
    averages = {name: average for average, name in list(_objects.items())}
    existing = dict(made_variables.made.alive())
    for name, pairs in found.items():
        for of, own in pairs if name in averages else ():
            variable, shadow = existing.get(Identity.parse(of)), Identity.parse(own)
            if variable is not None and variable.ref() not in averages[name]._averages:
                made = made_variables.made.again(shadow, contents[shadow], trainable=False)
                averages[name]._averages[variable.ref()] = made


def _pairs(average: Any) -> list[tuple[Any, Any]]:
    eager = [(of, own) for of, own in average._averages.items() if isinstance(own, tf.Variable)]
    return [(of, own) for of, own in eager if isinstance(of.deref(), tf.Variable)]
