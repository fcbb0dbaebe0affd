"""Timing of epochs in TensorFlow, shared by the session hook and the Keras callback."""

import os
import time

import horovod.tensorflow as hvd

from hvd_ft.system.say import answer
from hvd_ft.worker.epoch_timing import EpochClock, check_csv, describe, write_csv


class RankClock(EpochClock):
    """An `EpochClock` that rank 0 prints.

    Args:
        samples: in an epoch, of all ranks together; at least 1.
        batch_size: samples in a step of one rank; at least 1.
        csv: file for the laps, one per line; if omitted, no file is written.

    Raises:
        HvdFtError: an argument is out of range, or the file cannot be written.
        ValueError: Horovod is not initialised.
    """

    def __init__(
        self, samples: int, batch_size: int, csv: str | os.PathLike[str] | None = None
    ) -> None:
        super().__init__(samples, batch_size * hvd.size())
        self._csv = csv if hvd.rank() == 0 else None
        check_csv(self._csv)

    def begin_lap(self, step: int) -> None:
        """Training begins, or continues, after `step` steps."""
        self.start(step, time.time())

    def end_lap(self, step: int) -> None:
        """A boundary has been passed after `step` steps."""
        lap = self.lap(step, time.time())
        if hvd.rank() == 0:
            answer(describe(lap))
        if self._csv is not None:
            write_csv(self._csv, self.laps)
