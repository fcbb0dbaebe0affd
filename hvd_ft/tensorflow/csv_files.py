"""The files of Keras's CSVLoggers: a restarted fit continues them.

A snapshot contains each file as a whole. Until there is a snapshot, a note beside the arenas
records the length that each file had when its rank first began the fit: everything after that was
written by dead processes. A logger that does not append empties its file itself, with its first
row.
"""

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow import keras

from hvd_ft.native.core import Worker
from hvd_ft.system.json_text import read_json_as
from hvd_ft.system.say import say
from hvd_ft.system.writable import write_file
from hvd_ft.tensorflow import keras_api
from hvd_ft.tensorflow.keras_api import KERAS_3


class CsvFiles:
    """The CSVLoggers of a fit.

    Args:
        callbacks: of the fit; it has begun.
        worker: this process's attachment to its agent.
    """

    def __init__(self, callbacks: Iterable[Any], worker: Worker) -> None:
        self._loggers = [c for c in callbacks if isinstance(c, keras.callbacks.CSVLogger)]
        self._worker = worker

    def state(self) -> list[dict[str, Any] | None]:
        """Returns the files' state for a snapshot."""
        return [_state(logger) for logger in self._loggers]

    def restore(self, state: list[dict[str, Any] | None]) -> None:
        """Restores the files to their contents at the time of `state`.

        Args:
            state: returned by `state`; the loggers' attributes are already restored.
        """
        for logger, file in zip(self._loggers, state, strict=False):
            if file is not None:
                _write(logger, file["text"])
                if file["begun"]:  # otherwise it would begin with a header
                    fields = ["epoch", *logger.keys]
                    logger.writer = csv.DictWriter(logger.csv_file, fields, delimiter=logger.sep)

    def begin(self, loop: int) -> None:
        """Gives the files the contents that they had when this rank first began a fit.

        Args:
            loop: number of the fit, among the training loops.
        """
        appending = [logger for logger in self._loggers if logger.append]
        if not appending:
            return
        path = Path(self._worker.directory, f"tables-{self._worker.rank}.json")
        fits = _noted(path)
        lengths = fits.get(str(loop))
        if lengths is None:
            fits[str(loop)] = [len(_read(logger)) for logger in appending]
            write_file(path, json.dumps(fits).encode())
            return
        for logger, length in zip(appending, lengths, strict=False):
            _write(logger, _read(logger)[:length])


def _noted(path: Path) -> dict[str, list[int]]:
    """Returns the lengths that files had when a fit first began, by its number."""
    try:
        return read_json_as(path.read_bytes(), dict[str, list[int]])
    except FileNotFoundError:
        return {}
    except ValueError as error:
        say(
            f"{path} is damaged ({error}): look into the files of CSVLogger(append=True) for rows "
            "that a dead process has written"
        )
        return {}


def _state(logger: Any) -> dict[str, Any] | None:
    begun = logger.writer is not None
    return {"text": _read(logger), "begun": begun} if begun or logger.append else None


def _read(logger: Any) -> str:
    """Returns a logger's file; "" if there is none."""
    if not getattr(logger.csv_file, "closed", False):  # Keras 3's, at the end of fit
        logger.csv_file.flush()
    if not tf.io.gfile.exists(logger.filename):
        return ""
    with tf.io.gfile.GFile(logger.filename) as file:
        text: str = file.read()
        return text


def _write(logger: Any, text: str) -> None:
    logger.csv_file.close()
    with tf.io.gfile.GFile(logger.filename, "w") as file:
        file.write(text)
    open_as_keras = keras_api.source("utils.file_utils").File if KERAS_3 else tf.io.gfile.GFile
    logger.csv_file = open_as_keras(logger.filename, "a")
    if logger.append:  # as on_train_begin, which may have seen a dead process's file
        logger.append_header = not text
