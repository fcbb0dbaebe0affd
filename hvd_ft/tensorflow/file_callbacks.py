"""Keras's callbacks that write files: a restarted fit continues their files.

CSVLogger and TensorBoard have their own modules. ModelCheckpoint writes the same files again, and
its state is kept with the attributes of all callbacks.
"""

from collections.abc import Sequence
from typing import Any

from tensorflow import keras

from hvd_ft.errors import HvdFtError
from hvd_ft.native.core import Worker
from hvd_ft.tensorflow.csv_files import CsvFiles
from hvd_ft.tensorflow.event_files import EventFiles


class FileCallbacks:
    """The files of a fit's callbacks.

    Args:
        callbacks: of the fit; it has begun.
        worker: this process's attachment to its agent.

    Raises:
        HvdFtError: a callback loads the files of dead processes.
    """

    def __init__(self, callbacks: Sequence[Any], worker: Worker) -> None:
        for callback in callbacks:
            _check_loading(callback)
        self._tables = CsvFiles(callbacks, worker)
        self._events = EventFiles(callbacks, worker)

    def state(self) -> dict[str, Any]:
        """Returns the files' state for a snapshot."""
        return {
            "tables": self._tables.state(),
            "events": self._events.state(),
            "traces": self._events.traces(),
        }

    def begin(self, loop: int) -> None:
        """Begins a fit without a snapshot: removes what dead processes of this rank wrote in it.

        Args:
            loop: its number among the training loops.
        """
        self._tables.begin(loop)
        self._events.undo()

    def restore_events(self, state: dict[str, Any], *, done: bool) -> None:
        """Restores event files; call it before a step is traced.

        Args:
            state: returned by `state`.
            done: whether that was at the fit's end; a later fit may have continued the files.
        """
        self._events.restore(state["events"], done=done)

    def restore_rest(self, state: dict[str, Any], *, done: bool) -> None:
        """Restores CSVLoggers' files, and continues TensorBoards' traces.

        Args:
            state: returned by `state`; variables and callbacks' attributes are already restored.
            done: whether that was at the fit's end.
        """
        self._tables.restore(state["tables"])
        self._events.restore_traces(state["traces"], done=done)


def _check_loading(callback: Any) -> None:
    """Refuses callbacks that replace the weights at the beginning of each process's fit."""
    loads = getattr(callback, "load_weights_on_restart", False)  # which Keras 3 does not have
    if loads and isinstance(callback, keras.callbacks.ModelCheckpoint):
        raise HvdFtError(
            f"ModelCheckpoint({callback.filepath!r}, load_weights_on_restart=True) loads weights "
            "that a dead process of this rank may have written, at another step than the others "
            "are at: leave load_weights_on_restart out, as FaultTolerance restores weights itself; "
            "those of an earlier job are loaded by model.load_weights before fit, or by --resume"
        )
