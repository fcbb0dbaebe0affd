"""The plain state of a fit's other callbacks or a session's hooks: patience, best values, …

An attribute that describes its process (a file or a trace is open, the time when a step began) must
not be restored in another process. The attributes of this kind are known for the Keras callbacks
that have any; Keras's other callbacks and all of Horovod's have none. The contents of files are
restored with the files (file_callbacks.py).
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from tensorflow import keras

from hvd_ft.errors import HvdFtError
from hvd_ft.tensorflow import keras_api
from hvd_ft.tensorflow.keras_api import KERAS_3
from hvd_ft.worker.snapshot_format import encode

_OF_PROCESS: dict[type, frozenset[str]] = {
    keras.callbacks.CSVLogger: frozenset({"append_header", "csv_file", "writer"}),
    keras.callbacks.ProgbarLogger: frozenset({"progbar"}),
    keras.callbacks.TensorBoard: frozenset(
        {
            "_batch_start_time",
            "_batch_trace_context",
            "_epoch_start_time",
            "_is_tracing",
            "_prev_summary_state",  # the contexts of writers
            "_previous_epoch_iterations",  # at that time
            "_profiler_started",
            "_writers",
        }
    ),
}
if KERAS_3:
    # Each process turns its sign where it first compares, by a function that no snapshot holds.
    monitoring = keras_api.source("callbacks.monitor_callback").MonitorCallback
    _OF_PROCESS[monitoring] = frozenset({"min_delta"})


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

        Unchanged values come from the script, which may set different ones in a restarted process.
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
    left_out = [names for kind, names in _OF_PROCESS.items() if isinstance(callback, kind)]
    for name, value in vars(callback).items():
        if any(name in names for names in left_out):
            continue
        with suppress(HvdFtError):  # such as a model, a file, a function
            found[name] = b"".join(encode({}, {name: value}))
    return found
