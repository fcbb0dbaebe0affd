"""A running job as `hvdft status` sees it: its status, its steps per second, and its end."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import psutil

from hvd_ft.job.processes import job_processes
from hvd_ft.native.observer import Observer
from hvd_ft.native.types import Event
from hvd_ft.status.reader import History, Reader
from hvd_ft.status.recoveries import checkpoints, recoveries
from hvd_ft.status.snapshot import JobStatus
from hvd_ft.status.watch import LOOK_SECONDS

_LEAST_SECONDS, _MOST_SECONDS = 0.5, 2.0  # of looking, for steps per second


class Sight:
    """A job's status from its directory on this host.

    Args:
        directory: of the job.

    Raises:
        HvdFtError: it is no job's.
    """

    def __init__(self, directory: str) -> None:
        self._arena = Path(directory, "node.arena")
        self._job = os.path.basename(directory)
        self._observer = Observer(directory)
        self._reader = Reader(self._observer, directory, _history)

    def close(self) -> None:
        """Ends it."""
        self._observer.close()

    @property
    def has_ended(self) -> bool:
        """Whether the job's files are gone."""
        return not self._arena.exists()

    def look(self) -> None:
        """Takes a quick reading."""
        self._reader.look(time.monotonic_ns())

    def read(self) -> JobStatus | None:
        """Returns the status; None if the job has ended."""
        return None if self.has_ended else self._status()

    def measured(self) -> JobStatus:
        """Returns the status after looking for some steps, for up to two seconds."""
        begin = time.monotonic()
        self.look()
        first = self._status()
        if first.state in ("over", "dead") or not first.step:
            return first
        while (over := time.monotonic() - begin) < _MOST_SECONDS:
            time.sleep(LOOK_SECONDS / 5)  # no event tells of a step
            self.look()
            if over >= _LEAST_SECONDS and self._reader.rates.all_known:
                break
        return self._status()

    def _status(self) -> JobStatus:
        status = self._reader.read(time.monotonic_ns())
        pids = [rank.pid for rank in status.ranks if rank.here and rank.pid]
        lives = any(psutil.pid_exists(pid) for pid in pids) or bool(job_processes(self._job))
        return status if lives else msgspec.structs.replace(status, state="dead")


def _history(events: Sequence[Event], now_ns: int) -> History:
    return recoveries(events, now_ns), checkpoints(events, now_ns)
