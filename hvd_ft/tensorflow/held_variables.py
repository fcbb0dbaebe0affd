"""Variables that callbacks keep as attributes: a restarted process gets those it has not made yet.

A callback often makes its variables at its first step and then updates them. A restarted process
enters the training later, so the attributes have to exist already.
"""

import functools
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
import tensorflow as tf

from hvd_ft.system.say import say
from hvd_ft.tensorflow import keras_api, made_variables
from hvd_ft.tensorflow.made_variables import Identity
from hvd_ft.worker import training_loop

_PLAIN = (type(None), bool, int, float, str)


class HeldVariables:
    """The variables that a fit's callbacks keep.

    Args:
        callbacks: of the fit.
    """

    def __init__(self, callbacks: Sequence[Any]) -> None:
        self._callbacks: dict[str, Any] = {}
        seen: Counter[str] = Counter()
        for callback in callbacks:
            name = type(callback).__name__
            self._callbacks[f"{name}/{seen[name]}"] = callback
            seen[name] += 1

    def state(self, kept: Set[str]) -> dict[str, dict[str, Any]]:
        """Returns how attributes hold variables, by callback and attribute, for a snapshot.

        Args:
            kept: identities of the variables whose contents the snapshot has.
        """
        found: dict[str, dict[str, Any]] = {}
        for key, callback in self._callbacks.items():
            found[key] = {}
            for name, value in vars(callback).items():
                form = _form(value)
                if form is not None and (held := _identities(form)) and held <= kept:
                    found[key][name] = form
                elif isinstance(value, keras_api.MODULES) and name not in ("model", "_model"):
                    _look_at_module(type(callback).__name__, name, value)
        return found

    def restore(self, state: Mapping[str, Any], contents: Mapping[Identity, np.ndarray]) -> None:
        """Gives callbacks the variables that they have not made yet.

        Args:
            state: returned by `state`; a callback that no longer exists is skipped.
            contents: of the variables.
        """
        for key, attributes in state.items():
            callback = self._callbacks.get(key)
            for name, form in attributes.items() if callback is not None else ():
                if _outline(_form(vars(callback).get(name))) != _outline(form):
                    setattr(callback, name, _made_again(form, contents))


def _form(value: Any) -> Any:
    """Returns how variables are nested in a value; None if it contains something else."""
    if type(value) in _PLAIN:
        return ["plain", value]
    if isinstance(value, tf.Variable):
        identity = made_variables.made.identity(value)
        return None if identity is None else ["variable", str(identity), bool(value.trainable)]
    if type(value) is dict and all(type(key) in (str, int) for key in value):
        form = _form(list(value.values()))
        return None if form is None else ["dict", list(value), form]
    if type(value) in (list, tuple):
        forms = []
        for item in value:
            if (form := _form(item)) is None:
                return None
            forms.append(form)
        return [type(value).__name__, forms]
    return None


def _identities(form: Any) -> set[str]:
    if form[0] == "variable":
        return {form[1]}
    if form[0] == "dict":
        return _identities(form[2])
    return set().union(*map(_identities, form[1])) if form[0] != "plain" else set()


def _outline(form: Any) -> Any:
    """Returns a form without the identities of its variables."""
    if form is None or form[0] in ("plain", "variable"):
        return form and form[0]
    if form[0] == "dict":
        return [*form[:2], _outline(form[2])]
    return [form[0], *map(_outline, form[1])]


def _made_again(form: Any, contents: Mapping[Identity, np.ndarray]) -> Any:
    """Returns the value that has this form."""
    if form[0] == "plain":
        return form[1]
    if form[0] == "variable":
        identity, trainable = Identity.parse(form[1]), form[2]
        return made_variables.made.again(identity, contents[identity], trainable)
    if form[0] == "dict":
        return dict(zip(form[1], _made_again(form[2], contents), strict=True))
    items = [_made_again(item, contents) for item in form[1]]
    return items if form[0] == "list" else tuple(items)


def _look_at_module(callback: str, name: str, module: Any) -> None:
    phase = training_loop.phase()
    identities = map(made_variables.made.identity, keras_api.plain_all(module.variables))
    if any(each is not None and each.phase == phase for each in identities):
        _say_it_is_made_late(f"{callback}.{name}", type(module).__name__)


@functools.cache
def _say_it_is_made_late(what: str, kind: str) -> None:
    say(
        f"{what}, a {kind}, is made in training, so a restarted process begins with a new one: "
        "make it before fit, or in on_train_begin"
    )
