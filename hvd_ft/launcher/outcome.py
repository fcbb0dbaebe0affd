"""What a job has come to, for the line at its end: steps, failures, what they cost, checkpoints."""

from __future__ import annotations

import re
from typing import Protocol

from hvd_ft.native.types import Event, EventType, Status
from hvd_ft.reports.headline import Tally, outcome_line, tally

# The arena keeps only the latest events, so those that count are collected while the job runs.
_COUNTED = {EventType.FAILED, EventType.JOINED, EventType.CHECKPOINTED}
_STEP = re.compile(r"-step([0-9]+)(-end)?$")


class Seen(Protocol):
    """The part of `native.Observer` that counts."""

    @property
    def size(self) -> int: ...

    def status(self, rank: int) -> Status: ...

    def report(self, start: int = 0) -> list[Event]: ...


class Outcome:
    """Adds up what is seen of a job, or of the parts of one that changes its number of ranks."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._read = 0  # events of the present part
        self._step = 0  # of the present training loop
        self._lives = 0  # of all ranks, when that step was seen
        self._steps_before = 0  # of loops that have ended
        self._failures = self._checkpoints = self._lost_steps = 0
        self._lost_hosts = 0
        self._lost_seconds = 0.0
        self._seen = False

    def look(self, job: Seen) -> None:
        """Notes what has happened since the last look.

        Args:
            job: as it is seen now.
        """
        self._seen = True
        events = job.report(self._read)
        self._read += len(events)
        self._events += [event for event in events if event.type in _COUNTED]
        ranks = [job.status(rank) for rank in range(job.size)]
        step = max((rank.step for rank in ranks), default=0)
        lives = sum(rank.incarnation for rank in ranks)
        if step >= self._step:
            self._step, self._lives = step, lives
        elif step and lives == self._lives:  # not a restarted rank: another training loop
            self._steps_before += self._step
            self._step = step

    def part_ended(self) -> None:
        """Adds up the present part; the next one numbers its ranks and events anew."""
        counts = tally(self._events)
        self._failures += counts.failures
        self._lost_seconds += counts.lost_seconds
        self._checkpoints += counts.checkpoints
        self._events, self._read = [], 0

    def hosts_lost(self, count: int) -> None:
        """Notes hosts without which the job continues."""
        self._lost_hosts += count

    def continues_from(self, checkpoint: str) -> None:
        """Notes the steps that are repeated, because the next part begins from a checkpoint.

        Args:
            checkpoint: its path, whose name has its step.
        """
        if found := _STEP.search(checkpoint.rstrip("/")):
            at = int(found[1])
            self._lost_steps += max(self._step - at, 0)
            self._step = min(self._step, at)
            self._lives = 0

    def line(self, code: int) -> str:
        """Describes the whole job, once its last part has ended.

        Args:
            code: exit code of the job.

        Returns:
            The line; "" if no rank ran on this host, or if the job failed: then its last line is
            the one that says why, and what to do.
        """
        if code or not self._seen:
            return ""
        counts = Tally(self._failures, self._lost_seconds, self._checkpoints, self._lost_hosts)
        return outcome_line(code, self._steps_before + self._step, counts, self._lost_steps)
