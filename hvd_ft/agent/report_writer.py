"""Writes the report of a run as JSON Lines: its start, every event, its end."""

import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from hvd_ft import __version__
from hvd_ft.job.report_lines import NOTES, SCHEMA
from hvd_ft.native.observer import Observer
from hvd_ft.native.types import Event, EventType
from hvd_ft.system.commit import commit
from hvd_ft.system.json_text import read_json
from hvd_ft.system.say import say
from hvd_ft.system.writable import EXIT_NOT_WRITTEN, NotWrittenError, Output

_FUSION_BYTES = 128 << 20  # Horovod's default


class Journal:
    """Writes a job's events while it runs; the arena keeps only the latest.

    An agent of a later generation continues the file with the event after its last one.

    Args:
        path: of the report.
        observer: of the job.
        job: its id.
        command: the worker's command line.
        hosts: the host of each rank.
        ablated: the part that is left out for a measurement; "" if nothing is.
        generation: generation of the agent that writes.
        begun_ns: when the launcher began to start the job, CLOCK_MONOTONIC; None: unknown.
    """

    def __init__(
        self,
        path: str,
        observer: Observer,
        job: str,
        *,
        command: Sequence[str],
        hosts: Sequence[str],
        ablated: str = "",
        generation: int,
        begun_ns: int | None = None,
    ) -> None:
        self._path = path
        self._observer = observer
        self._complained = False
        self._last: dict[str, Any] = {}  # the fields of the last line
        self._seen = 0
        kept_bytes, self._to_skip = _written(path, job) if generation else (0, 0)
        self._output = Output(path, kept_bytes, private=True)
        if not kept_bytes:
            self._add_line(
                {
                    "schema": SCHEMA,
                    "job": job,
                    "size": observer.size,
                    "version": __version__,
                    "commit": commit(),
                    "date": datetime.now(UTC).isoformat(timespec="seconds"),
                    "command": list(command),
                    "hosts": list(hosts),
                    **({} if begun_ns is None else {"begun_ns": begun_ns}),
                    **({"ablated": ablated} if ablated else {}),
                }
            )

    def resume(self) -> None:
        """Continues the file of an agent of an older generation.

        If rank 0's host was replaced, the file contains events that the new arena lacks; new events
        are written nevertheless.
        """
        self.follow()
        self._to_skip = 0

    def follow(self) -> None:
        """Writes the job's events since the last call."""
        events = self._observer.report(self._seen)
        self._seen += len(events)
        for event in events:
            if self._to_skip:
                self._to_skip -= 1
            else:
                self._add_line({**asdict(event), "type": event.type.name, **self._more(event)})

    def _more(self, event: Event) -> dict[str, Any]:
        """Returns what a line has besides the event."""
        if event.type is not EventType.DIVERGED:
            return {}
        found = self._observer.divergence(event.detail)
        return {} if found is None else {"divergence": asdict(found)}

    def note(self, note: Mapping[str, Any]) -> None:
        """Writes a note of an agent, beside the events of the arena."""
        self._add_line(dict(note))

    def note_end(self, exit_code: int, error: str | None) -> None:
        """Writes the facts of the end, unless the last line already has them.

        If a report has several such lines, the last one counts.

        Args:
            exit_code: of the job.
            error: why the job was stopped; None if all ranks finished.
        """
        nodes = self._node_facts()
        most = nodes[0]["most"]  # of this node
        facts = {
            "exit_code": exit_code,
            "error": error,
            "limit_bytes": self._observer.limit_bytes,
            "used_bytes_peak": most["total"] - most["control"] - most["input_areas"],
            "log_length": self._observer.log_length,
            "log_records": self._observer.log_records,
            "fusion_threshold": fusion_threshold(os.environ),
            "nodes": nodes,
            "ranks": [self._rank_facts(rank) for rank in range(self._observer.size)],
        }
        if facts != self._last:
            self._add_line(facts)

    def publish(self, exit_code: int, error: str | None) -> int:
        """Writes the facts of the end; warns if the report could not be written.

        Args:
            exit_code: of the job.
            error: why the job was stopped; None if all ranks finished.

        Returns: The exit code of both, job and report.
        """
        self.note_end(exit_code, error)
        try:
            self._output.finish()
        except NotWrittenError:
            self._complain()
            return exit_code or EXIT_NOT_WRITTEN
        return exit_code

    def _add_line(self, fields: dict[str, Any]) -> None:
        self._last = fields
        self._output.write(json.dumps(fields).encode("ascii") + b"\n")
        if self._output.error:
            self._complain()

    def _complain(self) -> None:
        """Warns once why the report is incomplete; the job continues."""
        if not self._complained:
            self._complained = True
            say(
                f"the report {self._path} could not be written ({self._output.error}), so "
                "it is not complete; give another --report"
            )

    def _node_facts(self) -> list[dict[str, Any]]:
        nodes = []
        for rank in range(self._observer.size):
            now = self._observer.memory(rank)
            most = self._observer.memory(rank, most=True)
            if now and most:
                nodes.append({"first_rank": rank, "memory": asdict(now), "most": asdict(most)})
        return nodes

    def _rank_facts(self, rank: int) -> dict[str, Any]:
        status = self._observer.status(rank)
        return {
            "rank": rank,
            "state": status.state.name,
            "incarnation": status.incarnation,
            "step": status.step,
            "executed": status.executed,
            "step_bytes": status.step_bytes,
            "snapshots": asdict(self._observer.snapshots(rank)),
            "times": asdict(self._observer.times(rank)),
        }


def fusion_threshold(env: Mapping[str, str]) -> int:
    """Returns the bytes of stock Horovod's fusion buffer, as Horovod reads its setting."""
    digits = re.match(r"\s*[+-]?\d+", env.get("HOROVOD_FUSION_THRESHOLD", str(_FUSION_BYTES)))
    return max(int(digits.group()), 0) if digits else 0


def _written(path: str, job: str) -> tuple[int, int]:
    """Returns the bytes of the complete lines of this job's report, and the number of their events.

    Both are 0 if the file is not a regular file, or is another job's and therefore begun anew.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return 0, 0
        with open(path, "rb") as file:
            first = file.readline()
            if not (first.endswith(b"\n") and read_json(first)["job"] == job):
                return 0, 0
            kept, events = len(first), 0
            for line in file:
                if line.endswith(b"\n"):
                    kept += len(line)
                    events += read_json(line)["type"] not in NOTES
            return kept, events
    except (OSError, ValueError, KeyError, TypeError):
        return 0, 0
