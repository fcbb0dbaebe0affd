"""Keras's callbacks that write files: a restarted fit continues their files.

A CSVLogger's file is kept in the snapshot as a whole, as the callback begins it anew. TensorBoard's
event files are truncated to their length at the snapshot, which removes what the dead process wrote
later; the restarted process continues in a file of its own, as TensorFlow cannot append to one.
ModelCheckpoint writes the same files again, and its state is kept with all callbacks' attributes.
"""

import csv
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow import keras

from hvd_ft.native.core import Worker
from hvd_ft.native.types import EventType

_older: dict[str, int] = {}  # event files of this rank's earlier processes: their valid bytes


class FileCallbacks:
    """The files of a fit's callbacks.

    Args:
        callbacks: of the fit; it has begun.
        worker: this process's attachment to its agent.
    """

    def __init__(self, callbacks: Sequence[Any], worker: Worker) -> None:
        self._loggers = [c for c in callbacks if isinstance(c, keras.callbacks.CSVLogger)]
        self._boards = [c for c in callbacks if isinstance(c, keras.callbacks.TensorBoard)]
        self._worker = worker

    def state(self) -> dict[str, Any]:
        """Returns the files' state for a snapshot."""
        self._flush()
        own = self._of_processes([os.getpid()])
        return {
            "tables": [_read(logger) for logger in self._loggers],
            "events": _older | {str(path): path.stat().st_size for path in own},
        }

    def restore_tables(self, state: dict[str, Any]) -> None:
        """Restores CSVLoggers' files to their contents at the time of `state`.

        Args:
            state: returned by `state`; the loggers' attributes are already restored.
        """
        for logger, text in zip(self._loggers, state["tables"], strict=False):
            _write(logger, text)

    def restore_events(self, state: dict[str, Any], *, done: bool) -> None:
        """Restores event files; call it before a step is traced.

        Args:
            state: returned by `state`.
            done: whether that was at the fit's end; a later fit may have continued the files.
        """
        global _older
        _older = state["events"]
        begun = self._of_processes([os.getpid()])
        for board in self._boards:
            _begin_again(board)
        _remove(begun)
        if not done:
            self.undo()

    def undo(self) -> None:
        """Removes what dead processes have written after the snapshot, or since the fit began."""
        dead = [
            event.detail
            for event in self._worker.events()
            if (event.rank, event.type) == (self._worker.rank, EventType.STARTED)
            and event.incarnation < self._worker.incarnation
        ]
        _remove(self._of_processes(dead))
        for name, size in _older.items():
            if os.path.exists(name):
                os.truncate(name, size)

    def _flush(self) -> None:
        for board in self._boards:
            for writer in board._writers.values():
                writer.flush()

    def _of_processes(self, pids: Iterable[int]) -> list[Path]:
        """The event files that these processes have created, as their names tell."""
        return [
            path
            for pid in pids
            for board in self._boards
            for folder in (board._train_dir, board._val_dir)
            for path in sorted(Path(folder).glob(f"events.out.tfevents.*.{pid}.*"))
        ]


def _begin_again(board: Any) -> None:
    """Gives a TensorBoard new event files: the ones it has begun contain the graph again."""
    for name, writer in board._writers.items():
        writer.flush()
        fresh = tf.summary.create_file_writer(
            board._train_dir if name == "train" else board._val_dir
        )
        vars(writer).update(vars(fresh))  # it may be a context's default writer


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        if str(path) not in _older:
            path.unlink(missing_ok=True)


def _read(logger: Any) -> str | None:
    """Returns a logger's file; None if it has not begun one."""
    if logger.writer is None and not logger.append:
        return None
    logger.csv_file.flush()
    if not tf.io.gfile.exists(logger.filename):
        return ""
    with tf.io.gfile.GFile(logger.filename) as file:
        text: str = file.read()
        return text


def _write(logger: Any, text: str | None) -> None:
    if text is None:
        return
    logger.csv_file.close()
    with tf.io.gfile.GFile(logger.filename, "w") as file:
        file.write(text)
    logger.csv_file = tf.io.gfile.GFile(logger.filename, "a")
    if logger.keys is not None:  # otherwise it would begin with a header
        fields = ["epoch", *logger.keys]
        logger.writer = csv.DictWriter(logger.csv_file, fields, delimiter=logger.sep)
