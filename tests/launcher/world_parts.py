"""Drives the real machine of the parts of a simulated job, as launcher/resizing.py does."""

from __future__ import annotations

from typing import Any

from job_world import ELASTIC_SECONDS, Job, Violation, World

from hvd_ft.launcher.machine import parts_machine as do
from hvd_ft.launcher.machine.actions import End, HostsJoined, HostsLeft, Probe, Say
from hvd_ft.launcher.machine.parts_machine import PartsMachine
from hvd_ft.launcher.machine.seen import HostChange
from hvd_ft.members.hosts import Host
from hvd_ft.members.membership import Membership
from hvd_ft.members.resizing_rule import Limits, slots_of

LOOK_SECONDS = 0.25
PROBE_SECONDS = 0.3
NO_PROBE_SECONDS = 2.0
FIND_SECONDS = 0.1
COOLDOWN = (2.0, 4.0)


def _half() -> float:
    return 0.5


class Parts:
    """The parts of a job, one after the other.

    Attributes:
        host: of the launcher. alive: whether its process is. code: with which the job has ended.
    """

    def __init__(self, world: World, host: str) -> None:
        self.world, self.host = world, host
        self.alive = True
        self.code: int | None = None
        self._change: HostChange | None = None
        self._asked = False
        self._probing: set[str] = set()
        kind = world.kind
        self.machine = PartsMachine(
            Limits(kind.fewest, None, COOLDOWN, ELASTIC_SECONDS),
            kind.size,
            path=None,
            random=_half,
            now=world.now,
        )
        world.after(0.0, self, "look")

    @property
    def over(self) -> bool:
        """Whether nothing more comes."""
        return not self.alive or self.code is not None

    def look(self) -> None:
        """Looks for hosts, between two parts."""
        if self.over or self.machine.phase is not do.Phase.WAITING:
            return
        self.world.after(LOOK_SECONDS, self, "look")
        self._carry_out(self._look())

    def _look(self) -> list[do.Action]:
        self.machine.named(self.world.named)
        return self.machine.time_passed(self.world.now)

    def change(self) -> HostChange | None:
        """Returns the change of hosts that is due while a part runs."""
        self._change = None
        self._carry_out(self._look())
        return self._change

    def told(self, change: HostsLeft | HostsJoined) -> None:
        """The running part continues with other hosts."""
        if isinstance(change, HostsLeft):
            self.machine.left(change.names, self.world.now, lost=change.lost)
        else:
            self.machine.joined(change.hosts)

    def ended(self, end: End) -> None:
        """The running part has ended."""
        self._carry_out(self.machine.part_ended(end, self.world.now))
        if self.machine.phase is do.Phase.WAITING:
            self.look()

    def signalled(self, number: Any) -> None:
        """A signal comes between two parts."""
        self._asked = True
        self._carry_out(self.machine.signalled(number))

    def probed(self, host: str) -> None:
        """A probe has its outcome."""
        if not self.over:
            self._probing.discard(host)
            reason = "" if self.world.reaches(self.host, host) else "no route to host"
            self._carry_out(self.machine.reached(host, reason, self.world.now))

    def found(self) -> None:
        """It is known what checkpoint there is."""
        if not self.over:
            path = str(self.world.job.checkpoint) if self.world.job.checkpoint else None
            self._carry_out(self.machine.checkpoint_found(path, self.world.now))
            self.look()

    def _carry_out(self, actions: list[do.Action]) -> None:
        world = self.world
        for action in actions:
            if self.code is not None:
                raise Violation(f"{action} after the end of all parts")
            match action:
                case Say(text):
                    world.note(f"    => {text}")
                case Probe(host):
                    if host not in self._probing:
                        self._probing.add(host)
                        there = world.reaches(self.host, host)
                        seconds = PROBE_SECONDS if there else NO_PROBE_SECONDS
                        world.after(seconds, self, "probed", host)
                case do.FindCheckpoint():
                    world.after(FIND_SECONDS, self, "found")
                case do.ChangeHosts(change):
                    self._change = change
                case do.BeginPart(number, hosts, path):
                    self._begin(number, hosts, path)
                case do.EndParts(code):
                    self._check_end(code)
                    self.code = code

    def _begin(self, number: int, hosts: tuple[Host, ...], path: str | None) -> None:
        from world_launcher import Launcher

        world = self.world
        if slots_of(hosts) < world.kind.fewest:
            raise Violation(f"part {number} on too few hosts: {hosts}")
        step = int(path) if path else 0
        if step > world.job.step or (step < world.job.checkpoint and number > 1):
            raise Violation(f"part {number} continues from step {step} after {world.job}")
        members = Membership.first(hosts, slots_of(hosts))
        world.note(f"part {number} begins at step {step} on {members}")
        world.job = Job(number, members, step=step, checkpoint=step)
        world.started = world.epoch = 0
        world.launchers.append(Launcher(world, self.host, resume=False))

    def _check_end(self, code: int) -> None:
        world = self.world
        ended = world.launcher.ended
        asked = self._asked or world.launcher.signals
        goes_on = ended is not None and ended.code and (ended.lost or ended.resized)
        few = code == do.EXIT_TOO_FEW and world.happened & {"host gone", "early"}
        if goes_on and not asked and not few:
            raise Violation(f"no more parts, with code {code}")
