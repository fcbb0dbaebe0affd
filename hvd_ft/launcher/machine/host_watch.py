"""The watch over hosts and links: asks them, and judges what they answer. Pure."""

from collections.abc import Callable
from dataclasses import dataclass

from hvd_ft.job.host_key import host_name
from hvd_ft.job.lifeline_messages import Answer, Ask, NodeFacts
from hvd_ft.job.page_messages import LinkKind, LinkStatus
from hvd_ft.job.settings import Settings
from hvd_ft.launcher.machine.actions import Actions
from hvd_ft.launcher.machine.host_leases import ASK_SECONDS, Change, HostLeases, Lease
from hvd_ft.launcher.machine.link_watch import Broken, LinkWatch
from hvd_ft.launcher.machine.shim_roll import ShimRoll
from hvd_ft.native.links import GATHER, MIRROR, TO_PREDECESSOR, TO_SUCCESSOR, Counts, End

_STALLED_SECONDS = 3 * ASK_SECONDS  # counts are that old at most, as long as hosts answer
_NEVER = float("inf")
_KINDS: dict[str, LinkKind] = {
    TO_PREDECESSOR: "ring",
    TO_SUCCESSOR: "ring_back",
    GATHER: "gather",
    MIRROR: "mirror",
}


@dataclass(frozen=True)
class NewAgents:
    """The present generation of agents is to be replaced.

    Attributes:
        why: in words.
        counts: whether that is a failure of agents, which counts against the limit.
    """

    why: str
    counts: bool


@dataclass(frozen=True)
class GiveUp:
    """Hosts did not come back in time.

    Attributes:
        why: in one line.
        names: of the hosts, for mpirun.
    """

    why: str
    names: tuple[str, ...]


class HostWatch:
    """The watch.

    Args:
        roll: of the job's shims.
        settings: the limits.
        out: takes questions, and lines for the user.
        name_of: the user's name for the host of a rank; None where the user gave none.
        fences: whether every shim needs a lease, as lost hosts are replaced or done without
            instead of waited for.
    """

    def __init__(
        self,
        roll: ShimRoll,
        settings: Settings,
        out: Actions,
        name_of: Callable[[int], str | None],
        *,
        fences: bool = False,
    ) -> None:
        self._roll = roll
        self._settings = settings
        self._out = out
        self._name_of = name_of
        self._fences = fences
        self._leases = HostLeases(settings)
        self._asked: dict[int, float] = {}  # when, by number
        self._number = 0
        self._ask_at = 0.0
        self._generation = 0
        self._links = LinkWatch(settings.link_timeout_seconds)
        self._nodes: dict[int, tuple[str, NodeFacts]] = {}  # host, and its leader's latest counts
        self._over = False
        self.lost_one = False  # in this generation

    def begin(self, generation: int) -> None:
        """Another generation of agents is started."""
        self._generation = generation
        self._links = LinkWatch(self._settings.link_timeout_seconds)
        self._nodes = {}
        self.lost_one = False

    def look(self, now: float) -> NewAgents | GiveUp | None:
        """Asks the hosts when it is time, and judges their answers.

        Args:
            now: seconds on any steady clock.

        Returns: What is to be done; None: nothing.
        """
        self._ask_in_time(now)
        back = [change for change in self._leases.look(now) if self._tell(change)]
        if given_up := self._leases.given_up(now):
            host, seconds = next(iter(given_up.items()))
            why = f"{self.describe(host)} has not answered for {seconds:.0f} s"
            return GiveUp(why, tuple(map(self.name, given_up)))
        if back:
            return NewAgents(f"{self.describe(back[0].host)} was lost", counts=False)
        if broken := self._links.look(now, self._silent_nodes()):
            return NewAgents(self._describe_link(broken), counts=True)
        return None

    def look_at_end(self, now: float) -> list[str]:
        """Asks the hosts when the job's exit code is known; those that have left are not judged.

        Returns: The hosts that are lost, each with its ranks.
        """
        self._over = True
        self._ask_in_time(now)
        self._leases.forget(self.gone())
        for change in self._leases.look(now):
            self._tell(change)
        return [self.describe(host) for host in self.lost]

    def is_silent(self, host: str) -> bool:
        """Returns whether a host does not answer."""
        return host in self._leases.silent

    def gone(self) -> list[str]:
        """Returns the hosts that have said goodbye: they have ended all of their lines."""
        return [host for host in self._roll.hosts if host in self._roll.hung_up]

    def cut_off(self) -> list[str]:
        """Returns the silent hosts that have no line, and have not said goodbye."""
        there = {shim.host for shim in self._roll.shims} | self._roll.hung_up
        return [host for host in self._leases.silent if host not in there]

    def forget(self, host: str) -> None:
        """Ends the lease of a host; its next answer begins another one."""
        self._leases.forget([host])

    @property
    def any_silent(self) -> bool:
        """Whether any host does not answer."""
        return bool(self._leases.silent)

    @property
    def lost(self) -> list[str]:
        """The hosts that are lost."""
        return [host for host, lease in self._leases.silent.items() if lease is Lease.LOST]

    def describe(self, host: str) -> str:
        """Returns a host's name and its ranks, in words."""
        ranks = sorted(self._roll.hosts.get(host, ()))
        numbers = ", ".join(map(str, ranks))
        return f"host {self.name(host)} ({'ranks' if len(ranks) > 1 else 'rank'} {numbers})"

    def name(self, host: str) -> str:
        """Returns the name of a host for the user and for mpirun."""
        ranks = self._roll.hosts.get(host, ())
        return (self._name_of(min(ranks)) if ranks else None) or host_name(host)

    def connected(self, host: str, now: float) -> None:
        """A host has a line: it is lost, too, if it dies before its first answer."""
        self._leases.begin(host, now)

    def answered(self, host: str, answer: Answer) -> None:
        """Takes an answer of a host."""
        if (asked := self._asked.get(answer.number)) is not None:
            self._leases.answered(host, asked)
        facts = answer.facts
        if facts is None or facts.generation != self._generation:
            return
        self._nodes[facts.node] = (host, facts)
        self._links.counted(
            {
                End(facts.node, peer, kind): Counts(begun, posted, arrived)
                for _, peer, kind, begun, posted, arrived in facts.links
            }
        )

    def links(self, now: float) -> list[LinkStatus]:
        """Returns the state of each link between two nodes, one for each direction."""
        found = []
        for end, transfers, seconds in self._links.states(now, self._silent_nodes()):
            known = [self._nodes.get(node) for node in (end.peer, end.node)]
            source, dest = (
                each[1].name if each else f"node {node}"
                for each, node in zip(known, (end.peer, end.node), strict=True)
            )
            stalled = _STALLED_SECONDS <= seconds < _NEVER
            found.append(
                LinkStatus(
                    source=source,
                    dest=dest,
                    kind=_KINDS[end.kind],
                    state="unknown" if seconds == _NEVER else "stalled" if stalled else "open",
                    transfers=transfers,
                    stalled_seconds=seconds if stalled else 0.0,
                )
            )
        return found

    def _ask_in_time(self, now: float) -> None:
        if now < self._ask_at:
            return
        self._ask_at = now + ASK_SECONDS
        self._number += 1
        oldest = now - self._settings.host_timeout_seconds
        self._asked = {n: at for n, at in self._asked.items() if at > oldest}
        self._asked[self._number] = now
        self._roll.ask(Ask(self._number), self._leases.silent, each=self._fences)

    def _silent_nodes(self) -> list[int]:
        return [node for node, (host, _) in self._nodes.items() if self.is_silent(host)]

    def _tell(self, change: Change) -> bool:
        """Reports a change of a host; returns whether the host was lost and answers again."""
        host = self.describe(change.host)
        if change.lease is Lease.SUSPECT:
            self._out.say(f"{host} does not answer")
        elif change.lease is Lease.LOST:
            self.lost_one = True
            limit = f"{self._settings.host_timeout_seconds:g} s are over"
            waiting = "" if self._fences or self._over else f"; waiting for it until {limit}"
            self._out.say(f"{host} has not answered for {change.seconds:.0f} s{waiting}")
        else:
            self._out.say(f"{host} answers again after {change.seconds:.0f} s")
        return change.before is Lease.LOST and change.lease is Lease.VALID

    def _describe_link(self, broken: Broken) -> str:
        source, dest = (self._nodes[node][1] for node in (broken.source, broken.dest))
        link = f"{source.name} -> {dest.name}"
        if broken.kind == MIRROR:
            return f"{link} has delivered no control message for {broken.seconds:.0f} s"
        return f"{link} stands at {dest.stands} for {broken.seconds:.0f} s"
