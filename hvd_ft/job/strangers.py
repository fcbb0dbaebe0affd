"""The rule for connections that have not shown yet that they belong to the job. Pure.

Anybody can connect to a port. So a stranger has to show the job's key within a certain time, and
their number is limited: one more stranger takes the place of another. That is the oldest one from
the address with the most strangers. So an address that fills the places, by accident or not,
displaces its own connections, and a process of the job, which needs only a moment, gets in.
"""

from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True)
class _Stranger:
    address: str
    until: float


class Strangers:
    """The strangers of one port.

    Args:
        most: how many there may be.
        seconds: the time that each has.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._there: dict[int, _Stranger] = {}  # by number, the oldest first

    def __len__(self) -> int:
        return len(self._there)

    def arrived(self, number: int, address: str, now: float) -> int | None:
        """Notes a connection.

        Args:
            number: its own; no other one has had it.
            address: where it comes from, without the port.
            now: seconds on a steady clock.

        Returns:
            The number of the stranger that has to go for it; None: there is room.
        """
        victim = self.least_welcome() if len(self._there) >= self._most else None
        self._there[number] = _Stranger(address, now + self._seconds)
        return victim

    def left(self, number: int) -> None:
        """Notes that one has gone, or is a stranger no more."""
        self._there.pop(number, None)

    def late(self, now: float) -> list[int]:
        """Returns the numbers of those whose time is over."""
        return [number for number, one in self._there.items() if one.until <= now]

    @property
    def next_late(self) -> float:
        """When `late` has to be asked next; infinity: there is no stranger."""
        return min((one.until for one in self._there.values()), default=float("inf"))

    def least_welcome(self) -> int | None:
        """Returns the number of the stranger that goes if one has to; None if there is none."""
        by_address = Counter(one.address for one in self._there.values())
        if not by_address:
            return None
        busiest = max(by_address.values())
        return next(n for n, one in self._there.items() if by_address[one.address] == busiest)
