"""The rule that decides which hosts still answer. Pure.

The launcher asks every host once a second, and each answer renews the host's lease. A host that
does not answer becomes suspect, then lost. The launcher waits for a lost host, for a limited time,
and starts new agents when it answers again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from hvd_ft.job.settings import Settings

ASK_SECONDS = 1.0


class Lease(Enum):
    """The state of a host."""

    VALID = "answers"
    SUSPECT = "does not answer"
    LOST = "is lost"


@dataclass(frozen=True)
class Change:
    """A host has become suspect or lost, or answers again.

    Attributes:
        host: its name.
        lease: its present state. before: its previous state.
        seconds: since its last answer; if it answers again, how long it was silent.
    """

    host: str
    lease: Lease
    before: Lease
    seconds: float


@dataclass
class _Host:
    answered: float
    lease: Lease = Lease.VALID
    silent_since: float = 0.0  # of its silence


class HostLeases:
    """The leases of a job's hosts.

    Args:
        settings: the limits.
    """

    def __init__(self, settings: Settings) -> None:
        self._suspect = settings.suspect_seconds
        self._lease = settings.lease_seconds
        self._timeout = settings.host_timeout_seconds
        self._hosts: dict[str, _Host] = {}
        self._looked = float("-inf")

    def begin(self, host: str, now: float) -> None:
        """Gives a new host its first lease.

        Args:
            host: its name.
            now: seconds on any steady clock.
        """
        self._hosts.setdefault(host, _Host(now))

    def answered(self, host: str, now: float) -> None:
        """Renews a host's lease, or gives a new host its first.

        Args:
            host: its name.
            now: seconds on any steady clock, when the answered question was asked.
        """
        known = self._hosts.setdefault(host, _Host(now))
        known.answered = max(known.answered, now)

    def look(self, now: float) -> list[Change]:
        """Finds the hosts whose lease has changed since the last look.

        Args:
            now: seconds on the same clock; to be called about once in `ASK_SECONDS`.
        """
        if now - self._looked > self._suspect and self._looked > 0:
            # This process stood still itself, and could not receive answers.
            for host in self._hosts.values():
                host.answered = max(host.answered, now - ASK_SECONDS)
        self._looked = now
        changes = []
        for name, host in self._hosts.items():
            seconds = now - host.answered
            lease = self._judge(seconds)
            if lease is not host.lease:
                if host.lease is Lease.VALID:
                    host.silent_since = host.answered
                changes.append(Change(name, lease, host.lease, now - host.silent_since))
                host.lease = lease
        return changes

    def _judge(self, seconds: float) -> Lease:
        if seconds < self._suspect:
            return Lease.VALID
        return Lease.SUSPECT if seconds < self._lease else Lease.LOST

    @property
    def silent(self) -> Mapping[str, Lease]:
        """The silent hosts, as of the last look."""
        return {
            name: host.lease for name, host in self._hosts.items() if host.lease is not Lease.VALID
        }

    def given_up(self, now: float) -> dict[str, float]:
        """Returns the hosts that did not come back in time: their seconds of silence, by name."""
        return {
            name: now - host.answered
            for name, host in self._hosts.items()
            if now - host.answered > self._timeout
        }

    def forget(self, hosts: Iterable[str]) -> None:
        """Ends the leases of these hosts."""
        for host in hosts:
            self._hosts.pop(host, None)
