"""Who is in a job: its places, and which host has held each of them since which epoch. Pure.

Ranks and nodes keep their numbers as long as the job lives. A place is the position of a host in
the machine file, with its ranks. When a spare host replaces a lost one it takes its place, and that
begins a new epoch. Only the launcher changes the membership (membership_rule.py); every generation
of agents is started with the present one, in `HOROVOD_FT_MEMBERS`.

A place without a host of its own is a guest of another place's host, until its ranks have left the
job (arena/rosters.h); its agents stay there as members of the ring. Then another host can take it,
and its ranks return.

Files and processes of a host belong to the epoch in which the host took its place. So the files and
processes of a replaced host are recognised as old, even if the host comes back to the same place.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hvd_ft.members.hosts import Host

_PLACE = re.compile(r"([A-Za-z0-9._-]+):([1-9][0-9]{0,5})@([0-9]{1,9})(-?)", re.ASCII)


@dataclass(frozen=True)
class Place:
    """A host's place in the job.

    Attributes:
        host: its name, as the user gave it.
        first: its first rank.
        size: its number of ranks.
        since: the epoch in which the host took the place.
        leaving: whether its ranks leave the job, or have left it.
    """

    host: str
    first: int
    size: int
    since: int
    leaving: bool = False

    @property
    def ranks(self) -> range:
        """The ranks of this place."""
        return range(self.first, self.first + self.size)

    def describe(self) -> str:
        """Returns the ranks in words, such as "ranks 4-5"."""
        last = self.first + self.size - 1
        return f"rank {last}" if self.size == 1 else f"ranks {self.first}-{last}"


@dataclass(frozen=True)
class Membership:
    """The membership of a job.

    Attributes:
        epoch: counts its changes.
        places: in the order of ranks.
    """

    epoch: int
    places: tuple[Place, ...]

    @classmethod
    def first(cls, hosts: Sequence[Host], size: int) -> "Membership":
        """Returns the membership with which a job begins.

        Args:
            hosts: the job's hosts, with slots for all ranks. Hosts without a rank are not members.
            size: number of ranks.
        """
        places: list[Place] = []
        rank = 0
        for host in hosts:
            count = min(host.slots, size - rank)
            if count > 0:
                places.append(Place(host.name, rank, count, 0))
            rank += max(count, 0)
        return cls(0, tuple(places))

    @property
    def size(self) -> int:
        """The number of ranks."""
        return sum(place.size for place in self.places)

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The hosts in the order of their places, each with as many slots as it has ranks."""
        return tuple(Host(place.host, place.size) for place in self.places)

    def place_of(self, rank: int) -> int:
        """Returns the number of the place of a rank."""
        return next(n for n, place in enumerate(self.places) if rank in place.ranks)

    def replaced(self, number: int, host: str) -> "Membership":
        """Returns the membership of the next epoch, in which a host takes a place.

        Args:
            number: number of the place.
            host: the new host's name.
        """
        return self._changed(number, host=host, since=self.epoch + 1)

    def vacated(self, number: int, host: str) -> "Membership":
        """Returns the membership of the next epoch, in which the ranks of a place leave the job.

        Args:
            number: number of the place.
            host: a host that has its own place, and takes this one as a guest.
        """
        return self._changed(number, host=host, since=self.epoch + 1, leaving=True)

    def withdrawn(self, number: int) -> "Membership":
        """Returns the membership of the next epoch, in which ranks leave from their own host.

        Args:
            number: number of their place.
        """
        return self._changed(number, leaving=True)

    def refilled(self, number: int, host: str) -> "Membership":
        """Returns the membership of the next epoch, in which the ranks of a place return.

        Args:
            number: number of the place; its ranks have left.
            host: the host that takes it, and has no other place.
        """
        return self._changed(number, host=host, since=self.epoch + 1, leaving=False)

    def is_guest(self, number: int) -> bool:
        """Returns whether the host of a place had another place before."""
        place = self.places[number]
        return any(
            other.host == place.host and (other.since, n) < (place.since, number)
            for n, other in enumerate(self.places)
        )

    @property
    def staying(self) -> int:
        """The number of ranks that do not leave."""
        return sum(place.size for place in self.places if not place.leaving)

    @property
    def leaving(self) -> list[int]:
        """The ranks that leave the job, or have left it."""
        return [rank for place in self.places if place.leaving for rank in place.ranks]

    def _changed(self, number: int, **changes: Any) -> "Membership":
        places = list(self.places)
        places[number] = replace(places[number], **changes)
        return Membership(self.epoch + 1, tuple(places))

    def __str__(self) -> str:
        places = ",".join(
            f"{place.host}:{place.size}@{place.since}{'-' if place.leaving else ''}"
            for place in self.places
        )
        return f"{self.epoch};{places}"

    @classmethod
    def parse(cls, text: str) -> "Membership":
        """Reads the text of `str()`, such as `1;n0:4@0,n3:2@1`.

        Raises:
            ValueError: it is another text.
        """
        epoch, semicolon, rest = text.partition(";")
        if not semicolon or not epoch.isdecimal():
            raise ValueError(f"{text!r} is not a membership")
        places: list[Place] = []
        rank = 0
        for entry in rest.split(","):
            found = _PLACE.fullmatch(entry)
            if found is None or int(found[3]) > int(epoch):
                raise ValueError(f"{text!r} is not a membership")
            places.append(Place(found[1], rank, int(found[2]), int(found[3]), bool(found[4])))
            rank += int(found[2])
        return cls(int(epoch), tuple(places))
