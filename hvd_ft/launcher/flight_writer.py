"""Writes flight records beside the report, apart from the loop that renews leases."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from datetime import UTC, datetime
from typing import Any

from hvd_ft.job.host_key import host_name
from hvd_ft.job.report_file import has_file
from hvd_ft.launcher.machine.actions import WriteFlight
from hvd_ft.status.flight_record import RECORD_SCHEMA
from hvd_ft.system.apart import Call
from hvd_ft.system.event_loop import EventLoop
from hvd_ft.system.say import say
from hvd_ft.system.whole_file import write_whole

END_SECONDS = 5.0  # for records that are being written when the job ends


class FlightWriter:
    """The writer.

    Args:
        loop: is woken when a record is written.
        job: the job's id.
        report: path of the report; None: records lie in the working directory.
    """

    def __init__(self, loop: EventLoop, job: str, report: str | None) -> None:
        self._loop = loop
        self._job = job
        self._stem = stem_of(job, report)
        self._calls: list[Call[str]] = []
        self._one = threading.Lock()  # between the calls, which choose a name each

    def write(self, record: WriteFlight) -> None:
        """Begins to write a record; a line tells when it is there."""
        call: Call[str] = Call(
            self._loop, lambda: self._put(record), lambda: self._done(call, record)
        )
        self._calls.append(call)

    def finish(self) -> None:
        """Waits for records that are being written, for some seconds."""
        until = self._loop.now() + END_SECONDS
        while self._calls and (left := until - self._loop.now()) > 0:
            self._loop.run_once(left)
        for call in self._calls:
            call.forget()
            say(
                f"flight record {self._stem}: not written within {END_SECONDS:g} s; see that its "
                "directory answers"
            )
        self._calls = []

    def _put(self, record: WriteFlight) -> str:
        with self._one:
            path = free_path(self._stem)
            write_whole(path, contents(self._job, record))
        return path

    def _done(self, call: Call[str], record: WriteFlight) -> None:
        self._calls.remove(call)
        try:
            path = call.result
        except OSError as error:
            say(
                f"flight record {self._stem}: not written ({error.strerror}); see that its "
                "directory can be written"
            )
            return
        absent = ((host_name(host) or f"rank {rank}") for rank, host, _ in record.missing)
        hosts = dict.fromkeys(absent)
        missing = f"; missing: {', '.join(hosts)}" if hosts else ""
        kinds = ", ".join(dict.fromkeys(kind for kind, _ in record.reasons))
        say(f"flight record ({kinds}): hvdft report {path} shows it{missing}")


def stem_of(job: str, report: str | None) -> str:
    """Returns what the names of a job's records begin with.

    Args:
        job: its id.
        report: path of its report, if it has one.
    """
    return os.path.splitext(report)[0] if report and has_file(report) else f"hvdft-{job}"


def free_path(stem: str) -> str:
    """Returns the first name for a record that no file has."""
    number = 1
    while os.path.lexists(path := f"{stem}.flight-{number}.json"):
        number += 1
    return path


def contents(job: str, record: WriteFlight) -> bytes:
    """Returns a record as JSON."""
    nodes, stacks = [], {}
    for rank, part in record.parts.items():
        stacks[str(rank)] = str(part.get("stacks", ""))
        with contextlib.suppress(KeyError):
            nodes.append(part["node"])
    fields: dict[str, Any] = {
        "schema": RECORD_SCHEMA,  # first: it tells what the file is
        "job": job,
        "date": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "reasons": [{"kind": kind, "text": text} for kind, text in record.reasons],
        "nodes": nodes,
        "stacks": stacks,
        "missing": [
            {"rank": rank, "host": host_name(host), "why": why}
            for rank, host, why in record.missing
        ],
    }
    return json.dumps(fields, separators=(",", ":")).encode("ascii")
