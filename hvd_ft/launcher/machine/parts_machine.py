"""The state machine of a job that has as many ranks as there are hosts for. Pure.

Each part of it is a job of its own, with ranks numbered anew, which continues from the checkpoint
that the part before has left. job_machine.py decides within a part; where the hosts of a running
part can change in its processes, this machine says that they are to. resizing.py drives it.

| phase | ends when | next |
|---|---|---|
| WAITING | there are hosts enough, and all can be reached | PART |
| | there were too few for too long, or a signal came | ENDED |
| PART | a part has ended because of its hosts | FINDING |
| | it has ended otherwise | ENDED |
| FINDING | it is known what checkpoint it has left | WAITING |
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from hvd_ft.launcher.machine.actions import End, Probe, Say
from hvd_ft.launcher.machine.seen import HostChange
from hvd_ft.members.hosts import Host, host_list
from hvd_ft.members.resizing_rule import (
    HostPool,
    Limits,
    added,
    describe_change,
    slots_of,
    withdrawn,
)

EXIT_TOO_FEW = 1
QUIET_SECONDS = 2.0  # before the user is told that hosts are waited for


@dataclass(frozen=True)
class BeginPart:
    """Run the next part; `part_ended` tells its end.

    Attributes:
        number: of the part, from 1 on.
        hosts: on which it runs.
        path: of the checkpoint from which it goes on; None: from none.
    """

    number: int
    hosts: tuple[Host, ...]
    path: str | None


@dataclass(frozen=True)
class FindCheckpoint:
    """Find the checkpoint that the last part has left; `checkpoint_found` tells it."""


@dataclass(frozen=True)
class ChangeHosts:
    """Give the running part other hosts."""

    change: HostChange


@dataclass(frozen=True)
class EndParts:
    """The job has ended, with this exit code."""

    code: int


Action = Say | Probe | BeginPart | FindCheckpoint | ChangeHosts | EndParts


class Phase(Enum):
    """What the machine waits for."""

    WAITING = auto()
    PART = auto()
    FINDING = auto()
    ENDED = auto()


class PartsMachine:
    """The machine. Times are seconds on any steady clock.

    Args:
        limits: those that the user gave.
        size: the number of ranks with which the first part begins at least.
        path: of the checkpoint from which the first part goes on; None: from none.
        random: returns a random number from 0 up to 1.
        now: the time.
    """

    def __init__(
        self,
        limits: Limits,
        size: int,
        *,
        path: str | None,
        random: Callable[[], float],
        now: float,
    ) -> None:
        self._pool = HostPool(limits)
        self._at_least = size
        self._timeout = limits.timeout
        self._path = path
        self._random = random
        self._number = 0  # of the latest part
        self._present: tuple[Host, ...] = ()
        self._probed: set[str] = set()  # under way
        self._reached: set[str] = set()
        self._since = now  # it waits
        self._told = False
        self.phase = Phase.WAITING

    # -------------------------------------------------------------- events

    def named(self, hosts: Sequence[Host]) -> None:
        """The hosts that there are, are known anew."""
        self._pool = self._pool.named(hosts)

    def reached(self, host: str, reason: str, now: float) -> list[Action]:
        """A host was probed.

        Args:
            host: its name.
            reason: why it cannot be reached; "": it can.
            now: the time.
        """
        self._probed.discard(host)
        if not reason:
            self._reached.add(host)
            return []
        self._pool = self._pool.lost([host], now, self._random)
        return [Say(f"host {host} cannot be reached: {reason}")]

    def time_passed(self, now: float) -> list[Action]:
        """Time has passed, or hosts are known anew."""
        if self.phase is Phase.WAITING:
            return self._wait(now)
        return self._look_for_change(now) if self.phase is Phase.PART else []

    def signalled(self, number: signal.Signals) -> list[Action]:
        """This process has received a signal that ends the job, between two parts."""
        return self._end(128 + number)

    def part_ended(self, end: End, now: float) -> list[Action]:
        """The present part has ended."""
        if end.code == 0 or not (end.lost or end.resized):
            return self._end(end.code)
        self._lose(end.lost, now)
        self.phase = Phase.FINDING
        return [FindCheckpoint()]

    def checkpoint_found(self, path: str | None, now: float) -> list[Action]:
        """It is known what checkpoint the last part has left.

        Args:
            path: of it; None: there is none.
            now: the time.
        """
        actions: list[Action] = []
        if path is None:
            text = "the job had no state yet: what follows begins where its last part began"
            actions.append(Say(text))
        self._path = path or self._path
        self._at_least, self._since, self._told = 1, now, False
        self.phase = Phase.WAITING
        return actions + self._wait(now)

    def left(self, names: Sequence[str], now: float, *, lost: bool) -> None:
        """The running part continues without these hosts.

        Args:
            names: of them.
            now: the time.
            lost: whether they were lost; else they were given up.
        """
        self._present = tuple(host for host in self._present if host.name not in names)
        if lost:
            self._lose(names, now)

    def joined(self, hosts: Sequence[Host]) -> None:
        """The running part continues with these hosts besides."""
        self._present = (*self._present, *hosts)

    # -------------------------------------------------------------- decisions

    def _wait(self, now: float) -> list[Action]:
        chosen = self._pool.choice(now)
        actions: list[Action] = []
        if slots_of(chosen) >= self._at_least:
            actions += self._probe(chosen)
            if self._can_be_reached(chosen):
                return [*actions, *self._begin(chosen)]
        least = self._pool.limits.least
        if now > self._since + self._timeout:
            where = f"; hvdft run --resume {self._path} continues it" if self._path else ""
            text = (
                f"there were not {least} slots within {self._timeout:g} s, so the job was ended"
                f"{where or '; it has left no checkpoint'}"
            )
            return [*actions, Say(text), *self._end(EXIT_TOO_FEW)]
        if not self._told and now > self._since + QUIET_SECONDS:
            self._told = True
            slots, needed = slots_of(self._pool.usable(now)), max(least, self._at_least)
            text = (
                f"waiting for hosts: there are {slots} slots, and the job needs {needed}; it ends "
                f"in {self._timeout:g} s (--elastic-timeout)"
            )
            actions.append(Say(text))
        return actions

    def _begin(self, hosts: tuple[Host, ...]) -> list[Action]:
        self._number += 1
        self._present = hosts
        self.phase = Phase.PART
        begin = BeginPart(self._number, hosts, self._path)
        if self._number == 1:
            return [begin]
        text = f"the job continues with {slots_of(hosts)} ranks on {host_list(hosts)}"
        return [Say(text), begin]

    def _look_for_change(self, now: float) -> list[Action]:
        chosen = self._pool.change(self._present, now)
        if not chosen:
            return []
        actions = self._probe(chosen)
        if not self._can_be_reached(chosen):
            return actions
        why = describe_change(self._present, chosen)
        fewer, more = withdrawn(self._present, chosen), added(self._present, chosen)
        return [*actions, ChangeHosts(HostChange(why, slots_of(chosen), fewer, more))]

    def _probe(self, hosts: Sequence[Host]) -> list[Action]:
        names = [host.name for host in hosts]
        new = [name for name in names if name not in self._reached | self._probed]
        self._probed |= {*new}
        return list(map(Probe, new))

    def _can_be_reached(self, hosts: Sequence[Host]) -> bool:
        return self._reached >= {host.name for host in hosts}

    def _lose(self, names: Sequence[str], now: float) -> None:
        self._pool = self._pool.lost(names, now, self._random)
        self._reached -= {*names}

    def _end(self, code: int) -> list[Action]:
        self.phase = Phase.ENDED
        return [EndParts(code)]
