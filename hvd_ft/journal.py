"""The report of a run: facts, then one line for every event, as JSON Lines."""

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from hvd_ft import __version__
from hvd_ft.errors import HvdFtError
from hvd_ft.facts import Event
from hvd_ft.native import View


class Journal:
    """Collects a job's events while it runs; the arena keeps only the latest.

    Args:
        path: of the report.
        view: of the job.
        job: its id.
    """

    def __init__(self, path: str, view: View, job: str) -> None:
        self._path = os.path.abspath(path)
        self._view = view
        self._job = job
        self._peak_bytes = 0
        # A long run has more events than memory should hold.
        self._events = tempfile.TemporaryFile("w+", encoding="ascii")  # noqa: SIM115

    def add(self, events: Iterable[Event]) -> None:
        """Takes the events since the last call."""
        self._peak_bytes = max(self._peak_bytes, self._view.used_bytes)
        for event in events:
            fields = {**asdict(event), "type": event.type.name}
            self._events.write(json.dumps(fields) + "\n")

    def publish(self, exit_code: int, error: str | None) -> None:
        """Writes the report.

        Args:
            exit_code: of the job.
            error: why the job was stopped; None if all ranks finished.

        Raises:
            HvdFtError: it cannot be written.
        """
        facts = {
            "job": self._job,
            "size": self._view.size,
            "version": __version__,
            "exit_code": exit_code,
            "error": error,
            "limit_bytes": self._view.limit_bytes,
            "used_bytes_peak": self._peak_bytes,
            "log_length": self._view.log_length,
            "log_records": self._view.log_records,
            "ranks": [self._rank_facts(rank) for rank in range(self._view.size)],
        }
        directory, name = os.path.split(self._path)
        draft = os.path.join(directory, f".{name}.{self._job}")
        try:
            with open(draft, "x", encoding="ascii", opener=_private) as file, self._events:
                file.write(json.dumps(facts) + "\n")
                self._events.seek(0)
                shutil.copyfileobj(self._events, file)
            os.replace(draft, self._path)
        except OSError as caught:
            with contextlib.suppress(OSError):
                os.unlink(draft)
            raise _refused(self._path, caught.strerror) from caught

    def _rank_facts(self, rank: int) -> dict[str, Any]:
        status = self._view.status(rank)
        return {
            "rank": rank,
            "state": status.state.name,
            "incarnation": status.incarnation,
            "step": status.step,
            "executed": status.executed,
            "snapshots": asdict(self._view.snapshots(rank)),
        }


def check_report(path: str) -> None:
    """Checks that a report can be written there.

    Raises:
        HvdFtError: it cannot.
    """
    directory = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path):
        raise _refused(path, "it is a directory")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise _refused(path, f"{directory} is not there or not writable")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _refused(path: str, reason: str | None) -> HvdFtError:
    return HvdFtError(
        f"cannot write the report {path} ({reason}): give --report a file that can be made"
    )
