"""The rule by which a job's membership changes: who gets a lease, who is replaced, by whom. Pure.

The membership changes only here, and leases are granted only here, so the two cannot contradict
each other: a place is given away only if no lease of its host can still be valid, and a host that
has lost its place gets no lease. act_lease.py is the other side.

If no spare host is left, and the job may continue with fewer ranks in place, the ranks of a lost
host leave the job: its place becomes a guest of another host. The ranks start again there, from the
copies that other hosts have of their state, and continue up to the step boundary at which they
leave (protocol/roster.h). Then another host can take the place, and its ranks return.

A rule is a value: every event returns the next one. docs/internals/driver.md has the contract of
the code that calls it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from hvd_ft.members.hosts import Host
from hvd_ft.members.membership import Membership

_NEVER = float("-inf")


@dataclass(frozen=True)
class Limits:
    """The limits of leases.

    Attributes:
        lease_seconds: the length of a lease.
        margin_seconds: for a shim to notice that its lease has run out, and to stop what acts;
            and for clocks that do not run equally fast.
    """

    lease_seconds: float
    margin_seconds: float


@dataclass(frozen=True)
class Replaced:
    """Another host has taken a place.

    Attributes:
        place: its number.
        lost: the host that had it.
        epoch: that has begun.
        vacated: whether the place is a guest there, because its ranks leave the job; otherwise a
            spare host has it.
    """

    place: int
    lost: str
    epoch: int
    vacated: bool = False


@dataclass(frozen=True)
class Probe:
    """Find out whether this host can be reached: it is to replace another one."""

    host: str


@dataclass(frozen=True)
class NoSpare:
    """No spare host is left that could take a place.

    Attributes:
        place: its number.
    """

    place: int


Action = Replaced | Probe | NoSpare


@dataclass(frozen=True)
class Former:
    """A host that has lost its place.

    Attributes:
        host: its name.
        place: number of the place.
        since: the epoch in which it had taken the place.
    """

    host: str
    place: int
    since: int


@dataclass(frozen=True)
class MembershipRule:
    """The rule and its state.

    Attributes:
        limits: of leases.
        members: the present membership.
        named: every host that the user has named, with its slots.
        spares: names of the hosts that may replace others, in the order in which they are taken.
        heard: by rank, when the last granted answer was received, from which the lease counts.
        least: the number of ranks with which the running job continues if there is no spare host;
            None: it does not.
        warm: whether warm spares wait on rank 0's host.
        former: hosts that have lost their places and have not come back.
    """

    limits: Limits
    members: Membership
    named: tuple[Host, ...]
    spares: tuple[str, ...]
    heard: tuple[float, ...]
    least: int | None = None
    warm: bool = False
    former: tuple[Former, ...] = ()

    @classmethod
    def begin(
        cls,
        limits: Limits,
        members: Membership,
        named: Sequence[Host],
        *,
        resumed_at: float | None,
        least: int | None = None,
        warm: bool = False,
    ) -> "MembershipRule":
        """Returns the rule of a launcher that begins.

        Args:
            limits: of leases.
            members: the membership with which it begins.
            named: every host that the user has named. Those that are no members are spares.
            resumed_at: when it took over from another launcher, which may have granted leases up to
                that moment; None if there was none.
            least: see the attribute.
            warm: see the attribute.
        """
        taken = {place.host for place in members.places}
        heard = _NEVER if resumed_at is None else resumed_at
        return cls(
            limits,
            members,
            tuple(named),
            tuple(host.name for host in named if host.name not in taken),
            (heard,) * members.size,
            least,
            warm,
        )

    def admits(self, rank: int, epoch: int) -> bool:
        """Returns whether a shim belongs to the host that has its rank now.

        Args:
            rank: of the shim.
            epoch: in which its host took its place.
        """
        return epoch == self.members.places[self.members.place_of(rank)].since

    def answered(self, rank: int, epoch: int, now: float) -> "tuple[MembershipRule, bool]":
        """Handles the answer of a shim.

        Args:
            rank: the shim's rank.
            epoch: the epoch in which its host took its place.
            now: seconds on any steady clock, not before the answer was received.

        Returns:
            The next rule, and whether the shim's lease is granted.
        """
        if not self.admits(rank, epoch):
            return self, False
        heard = list(self.heard)
        heard[rank] = max(heard[rank], now)
        return replace(self, heard=tuple(heard)), True

    def came_back(self, rank: int, epoch: int) -> "tuple[MembershipRule, str]":
        """Notes that a shim has been told that its host has lost its place.

        Args:
            rank: of the shim.
            epoch: in which its host took its place.

        Returns:
            The next rule, in which the host is a spare; and its name, if it was not yet a spare.
        """
        number = self.members.place_of(rank)
        for former in self.former:
            if (former.place, former.since) == (number, epoch):
                rest = tuple(other for other in self.former if other is not former)
                rule = replace(self, former=rest)
                has_place = any(place.host == former.host for place in self.members.places)
                if has_place or former.host in self.spares:  # it had a guest, too
                    return rule, ""
                return replace(rule, spares=(*self.spares, former.host)), former.host
        return self, ""

    def slots(self, host: str) -> int:
        """Returns the number of slots of a host; 0 if the user has not named it."""
        return next((known.slots for known in self.named if known.name == host), 0)

    def is_fenced(self, number: int, now: float) -> bool:
        """Returns whether no lease of the host that has a place can still be valid.

        Args:
            number: of the place.
            now: seconds on the clock of `answered`.
        """
        wait = self.limits.lease_seconds + self.limits.margin_seconds
        return all(now > self.heard[rank] + wait for rank in self.members.places[number].ranks)

    def look(
        self, lost: Collection[int], reachable: Mapping[str, bool], now: float
    ) -> "tuple[MembershipRule, tuple[Action, ...]]":
        """Decides what to do about lost hosts.

        Args:
            lost: numbers of the places whose hosts do not answer, or are gone.
            reachable: whether spare hosts can be reached, as far as that is known.
            now: seconds on the clock of `answered`.
        """
        hosts = {self.members.places[number].host for number in lost}
        # A host is lost with its guests, also with those of which nothing was heard yet.
        lost = {at for at, place in enumerate(self.members.places) if place.host in hosts}
        rule, actions = self, list[Action]()
        for number in sorted(lost):
            rule, action = rule._look_at(number, lost, reachable, now)
            actions += action
        return rule, tuple(actions)

    def withdraw(self, names: Collection[str]) -> "MembershipRule | None":
        """Makes the ranks leave from hosts that are alive, but that the user wants back.

        Args:
            names: names of the hosts.

        Returns:
            The next rule; None if the running job cannot continue without them.
        """
        rule = self
        for number, place in enumerate(self.members.places):
            if place.host in names and not place.leaving:
                if not rule._may_leave(number):
                    return None
                rule = replace(rule, members=rule.members.withdrawn(number))
        return rule

    def fitting(self, hosts: Sequence[Host]) -> dict[int, str] | None:
        """Returns which places, whose ranks are gone or leaving, newly found hosts can take.

        Args:
            hosts: the hosts, with the slots to be used.

        Returns:
            The host of each place; None if one of the hosts fits no place.
        """
        open_places = {
            number: place for number, place in enumerate(self.members.places) if place.leaving
        }
        found: dict[int, str] = {}
        for host in hosts:
            others = [at for at, place in enumerate(self.members.places) if place.host == host.name]
            if any(at not in open_places for at in others) or len(others) > 1:
                return None  # it is another place's host, too
            fits = [at for at, place in open_places.items() if place.size == host.slots]
            number = next((at for at in fits if at in others), next(iter(fits), None))
            if number is None or (others and number not in others):
                return None
            found[number] = host.name
            del open_places[number]
        return found

    def refill(self, taken: Mapping[int, str], left: Collection[int]) -> "MembershipRule":
        """Gives hosts places whose ranks have left the running job and now return to it.

        Args:
            taken: the host of each place, as `fitting` has returned.
            left: places whose ranks have all left, so that none of their processes acts any more.

        Returns:
            The next rule; the same if any of these ranks has not left.
        """
        if self.least is None or not set(taken) <= set(left):
            return self
        rule = self
        for number, host in taken.items():
            heard = list(rule.heard)
            for rank in rule.members.places[number].ranks:
                heard[rank] = _NEVER
            rule = replace(
                rule,
                members=rule.members.refilled(number, host),
                spares=tuple(name for name in rule.spares if name != host),
                heard=tuple(heard),
                former=tuple(each for each in rule.former if each.host != host),
            )
        return rule

    def _may_leave(self, number: int) -> bool:
        """Returns whether the running job continues without a place's ranks; rank 0 has to stay."""
        place = self.members.places[number]
        left = self.members.staying - (0 if place.leaving else place.size)
        return self.least is not None and number > 0 and left >= self.least

    def _refuge(self, number: int, lost: Collection[int]) -> str:
        """Returns the host that takes a lost place as a guest; "": the job ends.

        It is the host with warm spares, because workers start at once there, or else the one with
        the fewest ranks.
        """
        if not self._may_leave(number) or 0 in lost:
            return ""
        if self.warm:
            return self.members.places[0].host
        ranks: dict[str, int] = {}
        for other, place in enumerate(self.members.places):
            if other not in lost:
                ranks[place.host] = ranks.get(place.host, 0) + place.size
        return min(reversed(ranks), key=ranks.__getitem__)

    def _look_at(
        self, number: int, lost: Collection[int], reachable: Mapping[str, bool], now: float
    ) -> "tuple[MembershipRule, list[Action]]":
        place = self.members.places[number]
        fitting = [name for name in self.spares if self.slots(name) >= place.size]
        # An earlier one that is not known yet is waited for, which takes seconds.
        first = next((name for name in fitting if reachable.get(name, True)), None)
        host = self._refuge(number, lost) if first is None else first
        if not host:
            return self, [NoSpare(number)]
        if first is not None and first not in reachable:
            return self, [Probe(first)]
        if not self.is_fenced(number, now):
            return self, []
        change = self.members.vacated if first is None else self.members.replaced
        members = change(number, host)
        heard = list(self.heard)
        for rank in place.ranks:
            heard[rank] = _NEVER
        former = Former(place.host, number, place.since)
        rule = replace(
            self,
            members=members,
            spares=tuple(name for name in self.spares if name != host),
            heard=tuple(heard),
            former=(*self.former, former),
        )
        return rule, [Replaced(number, place.host, members.epoch, vacated=first is None)]
