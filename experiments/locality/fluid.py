"""A simulator of flows in virtual time: what is under way shares links, CPUs and threads. Pure.

A flow has an amount (bytes, or seconds of work) and needs so much of each resource for a unit of
it. All flows under way get the same rate, but for those that a resource without room, or nothing
else, holds back (max-min fairness, as of TCP). Rates change only when a flow begins or ends, so
time goes from one such event to the next.
"""

import heapq
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_NOTHING = 1e-9  # of an amount, or of a capacity: what rounding leaves


class Resource:
    """What flows share.

    Args:
        capacity: how much of it there is a second.
        burst: what has been idle lets so much pass at once (a token bucket); it fills at the rate
            of the capacity.
    """

    def __init__(self, capacity: float, burst: float = 0.0) -> None:
        self.capacity = capacity
        self.burst = burst
        self.users = 0
        self._saved = burst
        self._idle_since = 0.0

    def credit(self, now: float) -> float:
        """Returns what passes at once; nothing while it is in use."""
        if self.users or not self.burst:
            return 0.0
        return min(self.burst, self._saved + (now - self._idle_since) * self.capacity)

    def begin(self, now: float, taken: float) -> None:
        """One more flow uses it, of which `taken` has passed at once."""
        if self.users == 0:
            self._saved = self.credit(now) - taken
        self.users += 1

    def end(self, now: float) -> None:
        """One flow less uses it."""
        self.users -= 1
        if self.users == 0:
            self._idle_since = now


Uses = Mapping[Resource, float]


@dataclass(eq=False)
class _Flow:
    left: float
    uses: Uses
    done: Callable[[], None]
    rate: float = 0.0


class Simulation:
    """Virtual time and what is under way.

    Attributes:
        now: seconds since the beginning.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._flows: list[_Flow] = []
        self._number = itertools.count()
        self._changed = False

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        """Calls `act` in so many seconds; what is due at the same time keeps its order."""
        heapq.heappush(self._events, (self.now + seconds, next(self._number), act))

    def flow(self, amount: float, uses: Uses, done: Callable[[], None]) -> None:
        """Begins a flow.

        Args:
            amount: its units.
            uses: what a unit takes of each resource.
            done: called when all of it has passed.
        """
        credit = min((r.credit(self.now) / need for r, need in uses.items() if r.burst), default=0)
        taken = min(amount, credit)
        for resource, need in uses.items():
            resource.begin(self.now, taken * need)
        self._flows.append(_Flow(amount - taken, uses, done))
        self._changed = True

    def run(self) -> float:
        """Runs until nothing is under way and nothing is due; returns that time."""
        while self._events or self._flows:
            if self._changed:
                self._share()
            ends = min((flow.left / flow.rate for flow in self._flows), default=float("inf"))
            due = self._events[0][0] - self.now if self._events else float("inf")
            self._pass(min(ends, due))
            if due <= ends:
                heapq.heappop(self._events)[2]()
        return self.now

    def _pass(self, seconds: float) -> None:
        self.now += seconds
        ended = []
        for flow in self._flows:
            flow.left -= flow.rate * seconds
            if flow.left <= flow.rate * _NOTHING:
                ended.append(flow)
        if not ended:
            return
        self._flows = [flow for flow in self._flows if flow not in ended]
        self._changed = True
        for flow in ended:
            for resource in flow.uses:
                resource.end(self.now)
        for flow in ended:
            flow.done()

    def _share(self) -> None:
        """Gives every flow its rate: all rise together, and each stops where a resource is full."""
        self._changed = False
        rising = set(self._flows)
        room: dict[Resource, float] = {}
        needed: dict[Resource, float] = {}
        for flow in self._flows:
            for resource, need in flow.uses.items():
                room[resource] = resource.capacity
                needed[resource] = needed.get(resource, 0.0) + need
        rate = 0.0
        while rising:
            step = min(room[r] / need for r, need in needed.items() if need > 0)
            rate += step
            full = set()
            for resource, need in needed.items():
                room[resource] -= step * need
                if need > 0 and room[resource] <= _NOTHING * resource.capacity:
                    full.add(resource)
            stopped = {flow for flow in rising if not full.isdisjoint(flow.uses)}
            for flow in stopped:
                flow.rate = rate
                for resource, need in flow.uses.items():
                    needed[resource] -= need
            for resource in full:
                needed[resource] = 0.0
            rising -= stopped
