"""Which hosts a job has when hosts are lost and found, between two numbers of ranks. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hvd_ft.errors import HvdFtError
from hvd_ft.members.hosts import Host

COOLDOWN_LIMITS = (1.0, 3600.0)  # seconds; horovodrun's too
TIMEOUT_SECONDS = 600.0  # horovodrun's default


@dataclass(frozen=True)
class Limits:
    """The limits that the user gave.

    Attributes:
        least: the smallest number of ranks with which the job trains.
        most: the largest number of ranks; None: as many as there are slots.
        cooldown: seconds for which a lost host is left out, at least and at most; longer with every
            loss. None: for ever.
        timeout: seconds for which too few slots are waited for.
        in_place: whether ranks keep their processes when the hosts of others leave.
    """

    least: int
    most: int | None = None
    cooldown: tuple[float, float] | None = None
    timeout: float = TIMEOUT_SECONDS
    in_place: bool = False

    def check(self, size: int) -> None:
        """Checks them against the number of ranks to begin with.

        Raises:
            HvdFtError: They contradict each other.
        """
        if self.least > size:
            raise HvdFtError(
                f"--min-np {self.least} is more than -np {size}, with which the job begins; give "
                "it less"
            )
        if self.most is not None and self.most < size:
            raise HvdFtError(
                f"--max-np {self.most} is less than -np {size}, with which the job begins; give "
                "it more"
            )
        if self.cooldown and not (
            COOLDOWN_LIMITS[0] <= self.cooldown[0] <= self.cooldown[1] <= COOLDOWN_LIMITS[1]
        ):
            low, high = self.cooldown
            raise HvdFtError(
                f"--blacklist-cooldown-range {low:g} {high:g}: give two times from "
                f"{COOLDOWN_LIMITS[0]:g} s to {COOLDOWN_LIMITS[1]:g} s, the smaller one first"
            )


@dataclass(frozen=True)
class HostPool:
    """The named hosts, and those among them that are left out.

    Attributes:
        limits: the user's limits.
        hosts: the named hosts, in the order in which they were first named.
        losses: how often each host was lost.
        back_at: when a lost host may be used again, in seconds of any steady clock.
    """

    limits: Limits
    hosts: tuple[Host, ...] = ()
    losses: Mapping[str, int] = field(default_factory=dict)
    back_at: Mapping[str, float] = field(default_factory=dict)

    def named(self, hosts: Sequence[Host]) -> HostPool:
        """Takes the hosts that exist now; those known before keep their order."""
        slots = {host.name: host for host in hosts}
        known = [slots.pop(host.name) for host in self.hosts if host.name in slots]
        return replace(self, hosts=(*known, *slots.values()))

    def lost(self, names: Collection[str], now: float, random: Callable[[], float]) -> HostPool:
        """Hosts are lost, or cannot be reached. For one that is already left out nothing changes.

        Args:
            names: names of the hosts.
            now: seconds on the clock of `back_at`.
            random: returns a random number from 0 up to 1.
        """
        new = [name for name in names if self.back_at.get(name, now) <= now]
        losses = {**self.losses, **{name: self.losses.get(name, 0) + 1 for name in new}}
        back = {name: now + self._cooldown(losses[name], random()) for name in new}
        return replace(self, losses=losses, back_at={**self.back_at, **back})

    def _cooldown(self, losses: int, drawn: float) -> float:
        """Returns for how long a host is left out, as horovodrun's HostState.

        It doubles with every loss. The random part keeps hosts that were lost together from being
        tried together again.
        """
        if self.limits.cooldown is None:
            return math.inf
        low, high = self.limits.cooldown
        return min(high, low * (2.0 ** min(losses, 1000) + drawn))

    def choice(self, now: float) -> tuple[Host, ...]:
        """Returns the hosts to run on, each with the slots that are used; () if too few."""
        usable = self.usable(now)
        return usable if slots_of(usable) >= self.limits.least else ()

    def usable(self, now: float) -> tuple[Host, ...]:
        """Returns the hosts that are not left out, each with the slots that may be used."""
        left = math.inf if self.limits.most is None else self.limits.most
        chosen = []
        for host in self.hosts:
            if left > 0 and self.back_at.get(host.name, now) <= now:
                chosen.append(Host(host.name, int(min(host.slots, left))))
                left -= chosen[-1].slots
        return tuple(chosen)

    def change(self, present: Sequence[Host], now: float) -> tuple[Host, ...]:
        """Returns the hosts that a running job should use instead of its present ones; () if none.

        A job that would otherwise have too few ranks keeps the hosts it has.
        """
        choice = self.choice(now)
        usable = {host.name: host.slots for host in self.hosts}
        withdrawn = any(usable.get(host.name, 0) < host.slots for host in present)
        return choice if withdrawn or slots_of(choice) > slots_of(present) else ()


def slots_of(hosts: Sequence[Host]) -> int:
    """Returns how many ranks fit on hosts."""
    return sum(host.slots for host in hosts)


def withdrawn(present: Sequence[Host], choice: Sequence[Host]) -> tuple[str, ...]:
    """Returns the hosts that a running job gives up, if the others stay as they are; else ()."""
    stays = {host.name: host.slots for host in choice}
    if any(host not in present for host in choice):
        return ()
    return tuple(host.name for host in present if host.name not in stays)


def added(present: Sequence[Host], choice: Sequence[Host]) -> tuple[Host, ...]:
    """Returns the hosts that a running job gets, if its present ones stay as they are; else ()."""
    if any(host not in choice for host in present):
        return ()
    return tuple(host for host in choice if host not in present)


def describe_change(present: Sequence[Host], choice: Sequence[Host]) -> str:
    """Returns in words why the hosts of a running job change."""
    before = {host.name: host.slots for host in present}
    after = {host.name: host.slots for host in choice}
    added = [name for name in after if after[name] > before.get(name, 0)]
    gone = [name for name in before if after.get(name, 0) < before[name]]
    verbs = [
        f"{', '.join(names)} {verb}" for names, verb in ((added, "more"), (gone, "less")) if names
    ]
    return f"the hosts have changed ({'; '.join(verbs)})"
