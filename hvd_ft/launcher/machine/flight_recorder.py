"""The rule of flight records: when there is one, and when all of its parts are there. Pure.

All agents are asked for their parts. After a limit those that have not answered are missing. When
the job is stopped nobody is asked, as agents are about to end: they send their parts by themselves.
"""

from __future__ import annotations

from typing import Any

from hvd_ft.job.lifeline_messages import FlightAsk
from hvd_ft.launcher.machine.actions import Actions, WriteFlight
from hvd_ft.launcher.machine.shim_roll import ShimRoll

LIMIT_SECONDS = 2.0  # for the parts
QUIET_SECONDS = 30.0  # between two records that nobody has asked for
MOST = 20  # records that nobody has asked for
ASKED, STALL, STOP, LINK = "asked", "stall", "stop", "link"
_NEVER = float("inf")


class FlightRecorder:
    """The records of one job, one after the other.

    Args:
        automatic: whether there are records that nobody asks for: the job has a report, beside
            which they lie.
        size: number of ranks.
        roll: of the job's shims, which are asked.
        out: takes actions.
        pid: of the process to which a user sends SIGUSR2.

    Attributes:
        deadline: when `look` has something to do.
    """

    def __init__(
        self, automatic: bool, size: int, roll: ShimRoll, out: Actions, *, pid: int
    ) -> None:
        self._automatic = automatic
        self._size = size
        self._roll = roll
        self._out = out
        self._pid = pid
        self._hinted = False  # that there could be records
        self._number = 0
        self._count = 0  # records that nobody has asked for
        self._quiet_until = 0.0
        self._stopped = False  # the job: of that there is one record
        self._reasons: list[tuple[str, str]] = []
        self._hosts: dict[int, str] = {}  # of the ranks that are to answer
        self._absent: list[tuple[int, str, str]] = []
        self._parts: dict[int, dict[str, Any]] = {}
        self.deadline = _NEVER

    @property
    def is_open(self) -> bool:
        """Whether a record is being put together."""
        return self.deadline < _NEVER

    def wanted(self, kind: str, text: str, now: float) -> None:
        """There is a reason for a record.

        Args:
            kind: as in a record.
            text: in words.
            now: seconds on any steady clock.
        """
        if self.is_open or self._may_open(kind, now):
            self._reasons.append((kind, text))
            if not self.is_open:
                self._open(now, ask=kind != STOP)
        elif not self._automatic:
            self._hint(kind)
        self._stopped = self._stopped or kind == STOP

    def awaits_link(self, text: str, now: float) -> bool:
        """A link is broken; returns whether agents are to live on, for a record of it.

        Args:
            text: in words.
            now: seconds on any steady clock.
        """
        if not self._has_link:
            self.wanted(LINK, text, now)
        return self._has_link

    @property
    def _has_link(self) -> bool:
        return any(kind == LINK for kind, _ in self._reasons)

    def part(self, rank: int, number: int, part: dict[str, Any], now: float) -> None:
        """An agent has sent its part.

        Args:
            rank: whose.
            number: of the record; 0: it was not asked, as the job is being stopped.
            part: the part.
            now: seconds on any steady clock.
        """
        if number == 0 and not self.is_open and self._may_open(STOP, now):
            self._open(now, ask=False)
        self._stopped = self._stopped or number == 0
        if self.is_open and number in (0, self._number):
            self._parts[rank] = part
            if self._hosts.keys() <= self._parts.keys() and self._reasons:
                self._close(now)

    def look(self, now: float) -> None:
        """Time has passed."""
        if now >= self.deadline:
            self._close(now)

    def end(self, now: float) -> None:
        """Nobody will answer any more."""
        if self.is_open:
            self._close(now)

    def _hint(self, kind: str) -> None:
        """Says once how to get a record where there is none."""
        if not self._hinted:
            now = f", and kill -USR2 {self._pid} writes one now" if kind == STALL else ""
            self._out.say(
                f"there is no flight record of this: --report FILE keeps such records{now} "
                "(docs/how-to/flight-records.md)"
            )
        self._hinted = True

    def _may_open(self, kind: str, now: float) -> bool:
        if kind == ASKED:
            return True
        due = not self._stopped if kind == STOP else now >= self._quiet_until
        return self._automatic and due and self._count < MOST

    def _open(self, now: float, *, ask: bool) -> None:
        self._number += 1
        shims = {shim.rank: shim for shim in self._roll.shims}
        self._hosts = {rank: shim.host for rank, shim in shims.items() if not shim.orphaned}
        self._absent = [
            (rank, shims[rank].host if rank in shims else "", _why(rank in shims))
            for rank in range(self._size)
            if rank not in self._hosts
        ]
        self._parts = {}
        self.deadline = now + LIMIT_SECONDS
        if ask:
            self._roll.tell(FlightAsk(self._number))
        if not self._hosts:
            self.deadline = now

    def _close(self, now: float) -> None:
        asked = any(kind == ASKED for kind, _ in self._reasons)
        self._count += not asked
        self._quiet_until = now + QUIET_SECONDS
        why = f"it did not answer within {LIMIT_SECONDS:g} s"
        late = [(r, host, why) for r, host in self._hosts.items() if r not in self._parts]
        reasons = tuple(self._reasons) or ((STOP, "the job is being stopped"),)
        missing = tuple(sorted(m for m in self._absent + late if m[0] not in self._parts))
        self._out.add(WriteFlight(reasons, dict(sorted(self._parts.items())), missing))
        self._reasons, self.deadline = [], _NEVER


def _why(known: bool) -> str:
    return "its agent has ended" if known else "its shim has no connection to the launcher"
