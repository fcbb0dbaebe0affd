"""The arbiter of the launchers of a simulated job, and what starts the second one."""

from __future__ import annotations

from hvd_ft.members.leadership import Record


class MemoryArbiter:
    """An arbiter that can be out of reach.

    Attributes:
        record: the job's.
        away_until: until when it does not answer.
    """

    def __init__(self) -> None:
        self.record: Record | None = None
        self.away_until = 0.0
        self.now = 0.0  # of the caller

    def _check(self) -> None:
        if self.now < self.away_until:
            raise OSError(5, "the arbiter is out of reach")

    def read(self) -> Record | None:
        self._check()
        return self.record

    def swap(self, expected: Record | None, new: Record) -> bool:
        self._check()
        if self.record != expected:
            return False
        self.record = new
        return True

    def remove(self) -> None:
        self._check()
        self.record = None
