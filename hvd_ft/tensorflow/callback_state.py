"""The plain state of a fit's other callbacks or a session's hooks: patience, best values, …"""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from hvd_ft.errors import HvdFtError
from hvd_ft.worker.snapshot_format import encode


class CallbackState:
    """The plain attributes of callbacks or hooks that change.

    Args:
        callbacks: of the fit or session, before their first epoch or step.
    """

    def __init__(self, callbacks: Sequence[Any]) -> None:
        self._callbacks: dict[str, Any] = {}
        seen: Counter[str] = Counter()
        for callback in callbacks:
            name = type(callback).__name__
            self._callbacks[f"{name}/{seen[name]}"] = callback
            seen[name] += 1
        self._initial = {key: _encoded(callback) for key, callback in self._callbacks.items()}
        # An attribute that holds other objects now, such as contexts to be left, may be an empty
        # list later.
        self._others = {
            key: vars(callback).keys() - self._initial[key].keys()
            for key, callback in self._callbacks.items()
        }

    def changes(self) -> dict[str, dict[str, Any]]:
        """Returns the changed values that a snapshot can hold, by callback and attribute.

        Unchanged values come from the script, which may set other ones in a restarted process.
        """
        return {
            key: {
                name: getattr(callback, name)
                for name, value in _encoded(callback).items()
                if self._initial[key].get(name) != value and name not in self._others[key]
            }
            for key, callback in self._callbacks.items()
        }

    def restore(self, changes: dict[str, dict[str, Any]]) -> None:
        """Sets the values that `changes` returned; a callback that no longer exists is skipped."""
        for key, attributes in changes.items():
            if key in self._callbacks:
                vars(self._callbacks[key]).update(attributes)


def _encoded(callback: Any) -> dict[str, bytes]:
    found = {}
    for name, value in vars(callback).items():
        with suppress(HvdFtError):  # such as a model, a file, a function
            found[name] = b"".join(encode({}, {name: value}))
    return found
