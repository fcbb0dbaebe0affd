"""The members of one job and its spare hosts: lost hosts are replaced, or done without. Pure.

membership_rule.py decides; this part tells it which hosts are lost and which can be reached, and
says in words what has become of them.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from enum import Enum, auto

from hvd_ft.job.lifeline_messages import Note, ShimStatus
from hvd_ft.job.settings import Settings
from hvd_ft.launcher.machine.actions import Actions, HostsJoined, HostsLeft, Probe
from hvd_ft.launcher.machine.host_watch import GiveUp, HostWatch, NewAgents
from hvd_ft.launcher.machine.job_facts import JobFacts
from hvd_ft.launcher.machine.seen import HostChange
from hvd_ft.launcher.machine.shim_roll import ShimRoll
from hvd_ft.launcher.machine.start_watch import SECONDS
from hvd_ft.members import membership_rule as rules
from hvd_ft.members.membership import Membership, Place
from hvd_ft.members.membership_rule import Limits, MembershipRule, NoSpare, Replaced
from hvd_ft.native.types import Left

_TRY_AGAIN_SECONDS = 10.0  # after all spare hosts were out of reach
_NS = 1e9


class Done(Enum):
    """What became of a change."""

    YES = auto()  # new agents have to be started
    NOT_YET = auto()  # ranks have not left yet that are to return
    NO = auto()  # the job has to continue from a checkpoint


def act_lease(settings: Settings) -> float:
    """Returns for how many seconds a host's processes act without hearing of the launcher."""
    return settings.fence_seconds * 2 / 3


class JobMembers:
    """The members.

    Args:
        facts: of the job.
        settings: the limits.
        roll: of the job's shims.
        out: takes actions.
        now: seconds on any steady clock.

    Attributes:
        rule: of the membership.
        leads: whether this launcher may act now.
        unfilled: hosts whose ranks the present generation starts elsewhere, or that it begins to
            use.
    """

    def __init__(
        self, facts: JobFacts, settings: Settings, roll: ShimRoll, out: Actions, now: float
    ) -> None:
        self._facts = facts
        self._settings = settings
        self._roll = roll
        self._out = out
        self.rule = MembershipRule.begin(
            Limits(act_lease(settings), settings.fence_seconds - act_lease(settings)),
            facts.members,
            [*facts.hosts, *facts.spare_hosts],
            resumed_at=now if facts.resume else None,
            least=facts.least_in_place,
            warm=facts.warm,
        )
        self.leads = True
        self._gone: dict[int, str] = {}  # places whose hosts are gone, and why
        self._probed: set[str] = set()  # spare hosts whose probes are under way
        self._reachable: dict[str, bool] = {}
        self._named: set[str] = set()  # spare hosts of which the user knows that they are away
        self._forget_at = 0.0  # when spare hosts that were out of reach are tried again
        self._waits: set[int] = set()  # places for which there is no spare, as said
        self._notes: list[dict[str, object]] = []  # for the report, by the next agent of rank 0
        self._due: list[dict[str, object]] = []  # by the present one
        self._generation, self._started = 0, self.members  # of the present agents
        self._new: list[str] = []  # as `unfilled`, of the next generation
        self.unfilled: tuple[str, ...] = ()

    def begin(self) -> None:
        """Has the user hear early of a spare host that cannot be reached."""
        if self._facts.replaces:
            self._probe_spares()

    @property
    def any_gone(self) -> bool:
        """Whether any host is gone and has not been replaced yet."""
        return bool(self._gone)

    @property
    def members(self) -> Membership:
        """The present membership."""
        return self.rule.members

    @property
    def start_limit(self) -> float:
        """Seconds for new agents to begin before their hosts are probed."""
        replaces = self._facts.replaces and self._generation
        return self._settings.fence_seconds if replaces else SECONDS

    @property
    def act_lease(self) -> float | None:
        """Seconds of a host's lease; None: hosts need none."""
        return act_lease(self._settings) if self._facts.fences else None

    def host_watch(self) -> HostWatch:
        """Returns the watch over the job's hosts; it loses those earlier that it can do without."""
        limits = self._settings
        soon = self._facts.fences
        if soon:
            suspect = min(limits.suspect_seconds, act_lease(limits))
            lease = limits.fence_seconds
            limits = replace(limits, suspect_seconds=suspect, lease_seconds=lease)
        if soon and not self._facts.replaces:
            limits = replace(limits, host_timeout_seconds=limits.fence_seconds)
        return HostWatch(self._roll, limits, self._out, self.host_of, fences=soon)

    def host_of(self, rank: int) -> str | None:
        """Returns the user's name for the host of a rank; None if there is none."""
        return self.members.places[self.members.place_of(rank)].host if self._facts.hosts else None

    def new_generation(self, generation: int) -> None:
        """Another generation of agents is started."""
        self._generation, self._started = generation, self.members
        self._due += self._notes
        self._notes.clear()
        self.unfilled = tuple(self._new)
        self._new.clear()

    # -------------------------------------------------------------- shims

    def admits(self, shim: ShimStatus) -> bool:
        """Returns whether the shim's host still has its place; if not, the shim is told to end."""
        if not self._facts.fences or self.rule.admits(shim.rank, shim.epoch):
            return True
        self.rule, back = self.rule.came_back(shim.rank, shim.epoch)
        if back:
            self._out.say(
                f"host {back} is back and has lost its place: it is a spare host from now on"
            )
        return False

    def begun(self, rank: int) -> None:
        """Notes that a shim has a line: its host is not gone, whatever was found out before."""
        self._gone.pop(self.members.place_of(rank), None)

    def grants(self, shim: ShimStatus, now: float) -> bool:
        """Returns whether the shim's lease is renewed, as it has answered."""
        if not self._facts.fences or not self.leads:
            return False
        self.rule, granted = self.rule.answered(shim.rank, shim.epoch, now)
        return granted

    # -------------------------------------------------------------- hosts that come and go

    def change(self, change: HostChange, left: Mapping[int, Left], hosts: HostWatch) -> Done:
        """Changes the hosts of the running job, if that can be.

        Args:
            change: what is to change.
            left: of each rank, whether it has left.
            hosts: the watch over the job's.
        """
        rule = self.rule.withdraw(change.withdrawn) if change.withdrawn and self.leads else None
        if rule is not None:
            self.rule = rule
            self._out.add(HostsLeft(change.withdrawn, lost=False))
            return Done.YES
        in_place = change.added and self._facts.least_in_place is not None
        taken = self.rule.fitting(change.added) if in_place else None
        if taken is None:
            return Done.NO
        found = {at: {left[rank] for rank in self.members.places[at].ranks} for at in taken}
        if any(Left.FOR_GOOD in each for each in found.values()):
            return Done.NO
        gone = [at for at, each in found.items() if each == {Left.MAY_RETURN}]
        rule = self.rule.refill(taken, gone) if self.leads else self.rule
        if rule is self.rule:
            return Done.NOT_YET
        self.rule = rule
        self._return(taken, hosts)
        self._out.add(HostsJoined(change.added))
        return Done.YES

    def _return(self, taken: Mapping[int, str], hosts: HostWatch) -> None:
        for number, host in taken.items():
            place = self.members.places[number]
            for old in self._roll.release(place.ranks):
                hosts.forget(old)
            verb = "returns" if place.size == 1 else "return"
            self._out.say(
                f"{place.describe()} {verb} to the job on host {host} (epoch {place.since})"
            )
            self._new.append(host)

    def gone(self, names: Mapping[str, str], *, at_start: bool = False) -> bool:
        """Notes that hosts are gone: nothing can be started there.

        Args:
            names: of them, each with the reason.
            at_start: whether their agents are just being started. Those of a new job are not
                replaced.

        Returns:
            Whether spare hosts are tried; `look` tells the result.
        """
        if not self._facts.replaces or (at_start and not self._generation):
            return False
        for number, place in enumerate(self.members.places):
            if place.host in names:
                self._gone[number] = names[place.host]
        return True

    def unheard(self) -> list[str]:
        """Returns the hosts on which the last agents were started, and that had no line yet.

        The first agents of a job are none of these: their start is watched otherwise.
        """
        if not self._generation:
            return []
        heard = {rank for ranks in self._roll.hosts.values() for rank in ranks}
        places = zip(self.members.places, self._started.places, strict=True)
        return [new.host for new, old in places if new == old and not heard & {*new.ranks}]

    def describe(self, name: str) -> str:
        """Returns a host's name and its ranks, in words."""
        ranks = (place.describe() for place in self.members.places if place.host == name)
        return f"host {name} ({', '.join(ranks)})"

    def found(self, name: str) -> None:
        """Notes that a host is there after all."""
        for number, place in enumerate(self.members.places):
            if place.host == name:
                self._gone.pop(number, None)

    def probed(self, host: str, reason: str) -> None:
        """Notes the outcome of a probe, if it was one of a spare host."""
        if host not in self._probed:
            return
        self._probed.remove(host)
        self._reachable[host] = not reason
        if reason and host not in self._named:
            self._named.add(host)
            self._out.say(f"spare host {host} cannot be reached: {reason}")

    def look(self, hosts: HostWatch, now: float) -> NewAgents | GiveUp | None:
        """Looks at the hosts; replaces lost ones, or does without them.

        Args:
            hosts: the watch over them.
            now: seconds on any steady clock.

        Returns:
            What is to be done; None: nothing.
        """
        verdict = hosts.look(now)
        verdict = self._replace_lost(hosts, now) or verdict
        if isinstance(verdict, GiveUp) and self._facts.may_shrink:
            return verdict if self._are_fenced(verdict.names, now) else None  # another look will
        return verdict

    def _are_fenced(self, names: Collection[str], now: float) -> bool:
        return all(
            self.rule.is_fenced(number, now)
            for number, place in enumerate(self.members.places)
            if place.host in names
        )

    def _replace_lost(self, hosts: HostWatch, now: float) -> NewAgents | GiveUp | None:
        if not self._facts.replaces or not self.leads:
            return None
        self._send_notes()
        lost = self._lost(hosts)
        if not lost and not hosts.any_silent:
            self._reachable.clear()
            self._waits.clear()
            return None
        if now > self._forget_at:
            self._reachable = {host: True for host, well in self._reachable.items() if well}
            self._forget_at = now + _TRY_AGAIN_SECONDS
        self._probe_spares()  # in time: it takes a second
        self.rule, actions = self.rule.look(lost, self._reachable, now)
        verdict: NewAgents | GiveUp | None = None
        for action in actions:
            match action:
                case Replaced():
                    verdict = self._replaced(action, hosts, now)
                case rules.Probe(host):
                    self._probe(host)
                case NoSpare(number):
                    verdict = self._without_spare(number) or verdict
        return verdict

    def _lost(self, hosts: HostWatch) -> set[int]:
        """Returns the places of the hosts that do not answer, or are gone."""
        lost = set(self._gone)
        for host in hosts.lost:
            for rank in self._roll.hosts.get(host, ()):
                lost.add(self.members.place_of(rank))
        return lost

    def _replaced(self, done: Replaced, hosts: HostWatch, now: float) -> NewAgents:
        place = self.members.places[done.place]
        self._gone.pop(done.place, None)
        self._reachable.pop(place.host, None)
        for old in self._roll.release(place.ranks):
            hosts.forget(old)
        verb = "continues" if place.size == 1 else "continue"
        until = ""
        if done.vacated:
            until = f" until {'it leaves' if place.size == 1 else 'they leave'} the job"
            self._out.add(HostsLeft((done.lost,), lost=True))
            self._new.append(done.lost)
        self._out.say(
            f"host {done.lost} is lost; its {place.describe()} {verb} on {place.host}{until} "
            f"(epoch {done.epoch})"
        )
        self._notes.append(_note(done, place, now))
        return NewAgents("the job's hosts have changed", counts=False)

    def _without_spare(self, number: int) -> GiveUp | None:
        place = self.members.places[number]
        if number in self._gone:
            return GiveUp(
                f"host {place.host} ({place.describe()}) is gone ({self._gone[number]}) and there "
                "is no spare host for it",
                (place.host,),
            )
        if self._facts.may_shrink:
            text = (
                f"host {place.host} ({place.describe()}) is lost and there is no spare host for it"
            )
            return GiveUp(text, (place.host,))
        if number not in self._waits:
            self._waits.add(number)
            self._out.say(
                f"there is no spare host for {place.host} ({place.describe()}); waiting for it"
            )
        return None

    def _probe_spares(self) -> None:
        for host in self.rule.spares:
            self._probe(host)

    def _probe(self, host: str) -> None:
        if host not in self._probed and host not in self._reachable:
            self._probed.add(host)
            self._out.add(Probe(host))

    def _send_notes(self) -> None:
        """Has the agent of rank 0 write into the report, as soon as there is one again."""
        if self._due and self._roll.has_rank_0(self._generation):
            for note in self._due:
                self._roll.tell_rank_0(Note(note))
            self._due.clear()


def _note(done: Replaced, place: Place, now: float) -> dict[str, object]:
    return {
        "type": "REPLACED",
        "time_ns": int(now * _NS),
        "rank": place.first,
        "ranks": list(place.ranks),
        "host": done.lost,
        "by": place.host,
        "epoch": done.epoch,
    }
