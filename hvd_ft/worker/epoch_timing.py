"""Times epochs, at the steps that complete them.

A step seldom ends exactly where an epoch ends, but a little later, and the exact position is
printed (10.02, not 10). So an epoch's time is that of the samples really trained.
"""

import csv
import io
import os
from typing import NamedTuple

from hvd_ft.errors import HvdFtError
from hvd_ft.system.writable import check_writable, write_file


class Lap(NamedTuple):
    """The measured time from one boundary between epochs to the next."""

    start_epoch: float
    end_epoch: float
    start_time: float  # seconds since 1970
    end_time: float
    epochs: float
    seconds: float
    epochs_per_second: float


class EpochClock:
    """Measures at the first step at or past each boundary between epochs.

    Its attributes are plain, so that a snapshot can hold them.

    Args:
        samples: in an epoch, of all ranks together; at least 1.
        batch: samples in a step, of all ranks together; at least 1.

    Raises:
        HvdFtError: an argument is out of range.
    """

    def __init__(self, samples: int, batch: int) -> None:
        for name, value in (("samples", samples), ("batch_size", batch)):
            if value < 1:
                raise HvdFtError(f"{name}={value} is out of range: give it 1 or more")
        self.laps: list[tuple[float, ...]] = []
        self._samples = samples
        self._batch = batch
        self._start: tuple[int, float] | None = None  # step and time

    def reset(self) -> None:
        """Forgets where the lap began: the next `start` counts."""
        self._start = None

    def start(self, step: int, now: float) -> None:
        """Training begins, after `step` steps; a lap that has begun continues."""
        if self._start is None:
            self._start = (step, now)

    def passes_boundary(self, step: int) -> bool:
        """Returns whether `step` is past a boundary that lay ahead at the lap's start."""
        assert self._start is not None, "start() comes first"
        return self._whole(step) > self._whole(self._start[0])

    def lap(self, step: int, now: float) -> Lap:
        """Ends a lap at this step and begins the next one."""
        assert self._start is not None, "start() comes first"
        begun, since = self._start
        epochs, seconds = (step - begun) * self._batch / self._samples, now - since
        rate = epochs / seconds if seconds > 0 else float("inf")
        lap = Lap(self._epoch(begun), self._epoch(step), since, now, epochs, seconds, rate)
        self.laps.append(tuple(lap))
        self._start = (step, now)
        return lap

    def _epoch(self, step: int) -> float:
        return step * self._batch / self._samples

    def _whole(self, step: int) -> int:
        return step * self._batch // self._samples


def describe(lap: Lap) -> str:
    """Returns a lap as one line."""
    return (
        f"hvdft: epoch {lap.end_epoch:.2f}: {lap.epochs:.2f} epochs in {lap.seconds:.3f} s, "
        f"{lap.epochs_per_second:.4g} epochs/s"
    )


def check_csv(path: str | os.PathLike[str] | None) -> None:
    """Checks that a CSV file can be written later.

    Raises:
        HvdFtError: it cannot.
    """
    check_writable(None if path is None else os.fspath(path))


def write_csv(path: str | os.PathLike[str], laps: list[tuple[float, ...]]) -> None:
    """Writes all laps; a concurrent reader sees the old file or the new one."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(Lap._fields)
    writer.writerows(laps)
    write_file(path, text.getvalue().encode())
