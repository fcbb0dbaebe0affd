"""The event files of Keras's TensorBoards, and their traces: a restarted fit continues them.

Event files are truncated to their length at the snapshot, which removes what the dead process wrote
later; the restarted process continues in a new file, because TensorFlow cannot append to one. A
trace of steps ends with its process; the restarted process traces the remaining steps.
"""

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow import keras

from hvd_ft.native.core import Worker
from hvd_ft.native.types import EventType

_older: dict[str, int] = {}  # event files of this rank's earlier processes: their valid bytes


class EventFiles:
    """The TensorBoards of a fit.

    Args:
        callbacks: of the fit; it has begun.
        worker: this process's attachment to its agent.
    """

    def __init__(self, callbacks: Iterable[Any], worker: Worker) -> None:
        self._boards = [c for c in callbacks if isinstance(c, keras.callbacks.TensorBoard)]
        self._worker = worker

    def state(self) -> dict[str, int]:
        """Returns the files' state for a snapshot."""
        for board in self._boards:
            for writer in board._writers.values():
                writer.flush()
        own = self._of_processes([os.getpid()])
        return _older | {str(path): path.stat().st_size for path in own}

    def traces(self) -> list[bool]:
        """Returns which TensorBoards are tracing steps, for a snapshot."""
        return [board._is_tracing for board in self._boards]

    def restore(self, state: dict[str, int], *, done: bool) -> None:
        """Restores event files; call it before a step is traced.

        Args:
            state: returned by `state`.
            done: whether `state` was called at the fit's end; a later fit may have continued the
                files.
        """
        global _older
        _older = state
        begun = self._of_processes([os.getpid()])
        for board in self._boards:
            _begin_again(board)
        _remove(begun)
        if not done:
            self.undo()

    def restore_traces(self, traces: list[bool], *, done: bool) -> None:
        """Continues tracing and measuring in this process.

        Args:
            traces: returned by `traces`; the model's variables are already restored.
            done: whether that was at the fit's end.
        """
        for board, tracing in zip(self._boards, traces, strict=False):
            if tracing and not done and not board._is_tracing:
                board._start_trace()
            elif board._is_tracing and not tracing:  # from the fit's first step, as it seemed
                tf.summary.trace_off()
                board._stop_profiler(save=False)
                board._is_tracing = False
            if board.write_steps_per_second:  # of this process, from here
                iterations = tf.convert_to_tensor(board.model.optimizer.iterations)
                board._previous_epoch_iterations = float(iterations)
                board._epoch_start_time = time.time()

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

    def _of_processes(self, pids: Iterable[int]) -> list[Path]:
        """The event files that these processes have created, recognized by their names."""
        return [
            path
            for pid in pids
            for board in self._boards
            for folder in (board._train_dir, board._val_dir)
            for path in sorted(Path(folder).glob(f"events.out.tfevents.*.{pid}.*"))
        ]


def _begin_again(board: Any) -> None:
    """Gives a TensorBoard new event files, because those it has begun contain the graph again."""
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
