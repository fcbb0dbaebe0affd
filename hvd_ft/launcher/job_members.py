"""Carries out the membership rule: lost hosts are replaced by spare hosts, or done without."""

import contextlib
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from hvd_ft.job.directory import job_path
from hvd_ft.job.lifeline import LifeLines, ShimStatus
from hvd_ft.job.member_file import read_members
from hvd_ft.job.settings import Settings
from hvd_ft.launcher import reach
from hvd_ft.launcher.host_watch import GiveUp, HostWatch, NewAgents
from hvd_ft.launcher.job import Job, ResolvedJob
from hvd_ft.launcher.job_leader import JobLeader
from hvd_ft.launcher.start_watch import SECONDS
from hvd_ft.members.hosts import Host, machine_file
from hvd_ft.members.membership import Membership, Place
from hvd_ft.members.membership_rule import Limits, MembershipRule, NoSpare, Probe, Replaced
from hvd_ft.system.memory_file import memory_file
from hvd_ft.system.say import say

_TRY_AGAIN_SECONDS = 10.0  # after all spare hosts were out of reach


def act_lease(settings: Settings) -> float:
    """Returns for how many seconds a host's processes act without hearing of the launcher."""
    return settings.fence_seconds * 2 / 3


class JobMembers:
    """The members of one job, and its spare hosts.

    Args:
        resolved: what to run.
        lines: to the shims.
        leader: of the job; None: there can be no other launcher.
        now: seconds of time.monotonic().
    """

    def __init__(
        self,
        resolved: ResolvedJob,
        lines: LifeLines,
        leader: JobLeader | None,
        now: float,
    ) -> None:
        job, settings = resolved.job, resolved.settings
        self._job = job
        self._settings = settings
        self._environment = resolved.environment
        self._lines = lines
        self._leader = leader
        margin = settings.fence_seconds - act_lease(settings)
        self.resumed_generation: int | None = None
        self.rule = MembershipRule.begin(
            Limits(act_lease(settings), margin),
            self._first_members(job_path(settings.arena_dir, job.id)),
            [*job.hosts, *job.spare_hosts],
            resumed_at=now if job.resume else None,
            least=job.least_in_place,
            warm=bool(job.spares),
        )
        self._gone: dict[int, str] = {}  # places whose hosts are gone, and why
        self._probes: dict[str, reach.Probe] = {}
        self._reachable: dict[str, bool] = {}
        self._named: set[str] = set()  # spare hosts of which the user knows that they are away
        self._forget_at = 0.0  # when spare hosts that were out of reach are tried again
        self._waits: set[int] = set()  # places for which there is no spare, as said
        self._notes: list[dict[str, object]] = []  # for the report
        self._generation = 0
        self._left: list[str] = []  # hosts without which the job goes on in place
        # Hosts whose ranks the next generation starts elsewhere, or that it begins to use.
        self._new: list[str] = []
        self.unfilled: tuple[str, ...] = ()  # those of the present one
        self._files = contextlib.ExitStack()
        self._machines = job.machine_file
        if self.members.epoch:
            self._machines = self._machine_file()
        if self.fences:
            lines.gate = self
        if self.replaces:
            for host in self.rule.spares:  # so that the user hears of it early
                self._probe(host)

    def _first_members(self, directory: str) -> Membership:
        """Returns the membership with which this launcher begins."""
        job = self._job
        first = Membership.first(job.hosts or [Host("localhost", job.size)], job.size)
        if not job.resume:
            return first
        found = [read_members(directory)]
        if self._leader and (record := self._leader.found):
            self.resumed_generation = record.generation + 1
            with contextlib.suppress(ValueError):
                found.append(Membership.parse(record.members))
        known = [members for members in found if members and members.size == job.size]
        return max(known, key=lambda members: members.epoch, default=first)

    def _leads(self) -> bool:
        return self._leader is None or self._leader.holds()

    @property
    def any_gone(self) -> bool:
        """Whether any host is gone and has not been replaced yet."""
        return bool(self._gone)

    @property
    def start_limit(self) -> float:
        """Seconds for new agents to begin before their hosts are probed."""
        return self._settings.fence_seconds if self.replaces and self._generation else SECONDS

    @property
    def replaces(self) -> bool:
        """Whether other hosts may take the places of lost ones in the running job."""
        return bool(self._job.spare_hosts) or self._job.least_in_place is not None

    @property
    def fences(self) -> bool:
        """Whether hosts act under leases only: others may take their places, or go on without."""
        return self.replaces or self._job.may_shrink

    @property
    def members(self) -> Membership:
        """The present membership."""
        return self.rule.members

    @property
    def names(self) -> list[str]:
        """The names of the present members."""
        return [place.host for place in self.members.places]

    def host_watch(self) -> HostWatch:
        """Returns the watch over the job's hosts; it loses those earlier that it can do without."""
        limits = self._settings
        soon = self.fences
        if soon:
            suspect = min(limits.suspect_seconds, act_lease(limits))
            lease = limits.fence_seconds
            limits = replace(limits, suspect_seconds=suspect, lease_seconds=lease)
        if soon and not self.replaces:
            limits = replace(limits, host_timeout_seconds=limits.fence_seconds)
        return HostWatch(self._lines, limits, self.host_of, say, replaces=soon)

    def present(self) -> Job:
        """Returns the job with its present hosts."""
        if self._job.machine_file is None or self.members.epoch == 0:
            return self._job
        return replace(self._job, hosts=self.members.hosts, machine_file=self._machines)

    def host_of(self, rank: int) -> str | None:
        """Returns the user's name for the host of a rank; None if there is none."""
        return self.present().host_of(rank)

    def environment(self) -> dict[str, str]:
        """Returns what agents need to know of the membership."""
        several = self._job.machine_file is not None
        lease = f"{act_lease(self._settings):.3f}" if self.fences else ""
        # Empty counts as unset: this process may run in a worker of another job.
        members = str(self.members) if several else ""
        return {"HOROVOD_FT_MEMBERS": members, "HOROVOD_FT_ACT_LEASE": lease}

    def begin(self, generation: int) -> None:
        """Another generation of agents is started."""
        self._generation = generation
        self._gone.clear()
        self.unfilled = tuple(self._new)
        self._new.clear()

    def take_left(self) -> list[str]:
        """Returns the hosts that were lost, and without which the job goes on, since last asked."""
        left, self._left = self._left, []
        return left

    def withdraw(self, names: Sequence[str]) -> bool:
        """Has the ranks of hosts leave the running job; returns whether it can go on without."""
        rule = self.rule.withdraw(names) if self._leads() else None
        if rule is None:
            return False
        self.rule = rule
        self._machines = self._machine_file()
        return True

    def fitting(self, hosts: Sequence[Host]) -> Mapping[int, str] | None:
        """Returns which places these hosts can take in the running job; None: not for all."""
        return self.rule.fitting(hosts) if self._job.least_in_place is not None else None

    def refill(self, taken: Mapping[int, str], left: Collection[int], hosts: HostWatch) -> bool:
        """Has hosts take places whose ranks have left; returns whether they have.

        Args:
            taken: the host of each place.
            left: places whose ranks have all left.
            hosts: the watch over the job's.
        """
        rule = self.rule.refill(taken, left) if self._leads() else self.rule
        if rule is self.rule:
            return False
        self.rule = rule
        self._machines = self._machine_file()
        for number, host in taken.items():
            place = self.members.places[number]
            for old in self._lines.release(place.ranks):
                hosts.forget(old)
            verb = "returns" if place.size == 1 else "return"
            say(f"{place.describe()} {verb} to the job on host {host} (epoch {place.since})")
            self._new.append(host)
        return True

    def close(self) -> None:
        """Ends probes, and releases the machine file."""
        for probe in self._probes.values():
            probe.close()
        self._files.close()

    # -------------------------------------------------------------- shims

    def admits(self, shim: ShimStatus) -> bool:
        """As `Gate.admits`."""
        if self.rule.admits(shim.rank, shim.epoch):
            return True
        self.rule, back = self.rule.came_back(shim.rank, shim.epoch)
        if back:
            say(f"host {back} is back and has lost its place: it is a spare host from now on")
        return False

    def grants(self, shim: ShimStatus) -> bool:
        """As `Gate.grants`."""
        if not self._leads():
            return False
        self.rule, granted = self.rule.answered(shim.rank, shim.epoch, time.monotonic())
        return granted

    # -------------------------------------------------------------- hosts

    def gone(self, names: Mapping[str, str], *, at_start: bool = False) -> bool:
        """Notes that hosts are gone: nothing can be started there.

        Args:
            names: of them, each with the reason.
            at_start: whether their agents are just being started. Those of a new job are not
                replaced.

        Returns:
            Whether spare hosts are tried; `look` tells the result.
        """
        if not self.replaces or (at_start and not self._generation):
            return False
        for number, place in enumerate(self.members.places):
            if place.host in names:
                self._gone[number] = names[place.host]
        return True

    def found(self, name: str) -> None:
        """Notes that a host is there after all."""
        for number, place in enumerate(self.members.places):
            if place.host == name:
                self._gone.pop(number, None)

    def look(self, hosts: HostWatch, now: float) -> NewAgents | GiveUp | None:
        """Looks at the hosts; replaces lost ones, or does without them.

        Args:
            hosts: the watch over them.
            now: time.monotonic()'s.

        Returns:
            What is to be done; None: nothing.
        """
        verdict = hosts.look(now)
        verdict = self._replace_lost(hosts, now) or verdict
        if isinstance(verdict, GiveUp) and self._job.may_shrink:
            return verdict if self._are_fenced(verdict.names, now) else None  # another look will
        return verdict

    def _are_fenced(self, names: Collection[str], now: float) -> bool:
        return all(
            self.rule.is_fenced(number, now)
            for number, place in enumerate(self.members.places)
            if place.host in names
        )

    def _replace_lost(self, hosts: HostWatch, now: float) -> NewAgents | GiveUp | None:
        if not self.replaces or not self._leads():
            return None
        self._poll_probes()
        self._send_notes()
        lost = self._lost(hosts)
        if not lost and not hosts.any_silent:
            self._reachable.clear()
            self._waits.clear()
            return None
        if now > self._forget_at:
            self._reachable = {host: True for host, well in self._reachable.items() if well}
            self._forget_at = now + _TRY_AGAIN_SECONDS
        for host in self.rule.spares:  # in time: it takes a second
            self._probe(host)
        self.rule, actions = self.rule.look(lost, self._reachable, now)
        verdict: NewAgents | GiveUp | None = None
        for action in actions:
            match action:
                case Replaced():
                    verdict = self._replaced(action, hosts)
                case Probe(host):
                    self._probe(host)
                case NoSpare(number):
                    verdict = self._without_spare(number) or verdict
        return verdict

    def _lost(self, hosts: HostWatch) -> set[int]:
        """Returns the places of the hosts that do not answer, or are gone."""
        lost = set(self._gone)
        for host in hosts.lost:
            for rank in self._lines.hosts.get(host, ()):
                lost.add(self.members.place_of(rank))
        return lost

    def _replaced(self, done: Replaced, hosts: HostWatch) -> NewAgents:
        place = self.members.places[done.place]
        self._gone.pop(done.place, None)
        self._reachable.pop(place.host, None)
        old = [host for host, ranks in self._lines.hosts.items() if ranks & set(place.ranks)]
        self._lines.forget(old)
        for host in old:
            hosts.forget(host)
        self._machines = self._machine_file()
        verb = "continues" if place.size == 1 else "continue"
        until = ""
        if done.vacated:
            until = f" until {'it leaves' if place.size == 1 else 'they leave'} the job"
            self._left.append(done.lost)
            self._new.append(done.lost)
        say(
            f"host {done.lost} is lost; its {place.describe()} {verb} on {place.host}{until} "
            f"(epoch {done.epoch})"
        )
        self._notes.append(_note(done, place))
        return NewAgents("the job's hosts have changed", counts=False)

    def _machine_file(self) -> str:
        return self._files.enter_context(memory_file(machine_file(self.members.hosts)))

    def _without_spare(self, number: int) -> GiveUp | None:
        place = self.members.places[number]
        if number in self._gone:
            return GiveUp(
                f"host {place.host} ({place.describe()}) is gone ({self._gone[number]}) and there "
                "is no spare host for it",
                (place.host,),
            )
        if self._job.may_shrink:
            text = (
                f"host {place.host} ({place.describe()}) is lost and there is no spare host for it"
            )
            return GiveUp(text, (place.host,))
        if number not in self._waits:
            self._waits.add(number)
            say(f"there is no spare host for {place.host} ({place.describe()}); waiting for it")
        return None

    def _probe(self, host: str) -> None:
        if host not in self._probes and host not in self._reachable:
            self._probes[host] = reach.Probe(host, self._environment)

    def _poll_probes(self) -> None:
        for host, probe in list(self._probes.items()):
            reason = probe.result()
            if reason is None:
                continue
            self._probes.pop(host).close()
            self._reachable[host] = not reason
            if reason and host not in self._named:
                self._named.add(host)
                say(f"spare host {host} cannot be reached: {reason}")

    def _send_notes(self) -> None:
        """Has the agent of rank 0 write into the report, as soon as there is one again."""
        if self._notes and any(
            shim and shim.rank == 0 and shim.generation == self._generation and not shim.orphaned
            for shim in self._lines.shims
        ):
            for note in self._notes:
                self._lines.note(note)
            self._notes.clear()


def _note(done: Replaced, place: Place) -> dict[str, object]:
    return {
        "type": "REPLACED",
        "time_ns": time.monotonic_ns(),
        "rank": place.first,
        "ranks": list(place.ranks),
        "host": done.lost,
        "by": place.host,
        "epoch": done.epoch,
    }
