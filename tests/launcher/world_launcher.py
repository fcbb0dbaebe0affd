"""The simulated driver of the launcher's machine, the arbiter of two launchers, and resizing."""

from __future__ import annotations

import signal
from typing import Any

import world_checks as checks
from job_world import Job, Violation, World
from world_generation import Generation
from world_line import Line
from world_shim import Shim

from hvd_ft.job.lifeline_messages import Over
from hvd_ft.launcher.machine import actions as do
from hvd_ft.launcher.machine.job_facts import JobFacts
from hvd_ft.launcher.machine.job_machine import JobMachine
from hvd_ft.launcher.machine.seen import MpirunSeen, WorkersSeen
from hvd_ft.members.leadership import (
    LEADERSHIP_SECONDS,
    RENEW_SECONDS,
    Leadership,
    Record,
    Watched,
)
from hvd_ft.members.membership import Membership
from hvd_ft.native.types import Left

ARBITER_SECONDS = 0.1
LOOK_SECONDS = 0.5
PROBE_SECONDS = 0.3
NO_PROBE_SECONDS = 2.0
CLEAR_SECONDS = 3.0


class Launcher:
    """A launcher: the real machine, and a driver.

    Attributes:
        host: where it runs. alive: whether its process does. listens: whether shims find it.
        ended: how the job has ended for it. over: whether nothing more comes from it.
    """

    def __init__(self, world: World, host: str, *, resume: bool) -> None:
        self.world, self.kind, self.host = world, world.kind, host
        self.job: Job = world.job
        self.resume = resume
        self.alive = True
        self.listens = False
        self.ended: do.End | None = None
        self.over = False
        self.refused = False
        self.machine: JobMachine | None = None
        self.mpirun: Generation | None = None
        self.started: list[int] = []
        self.lines: dict[int, Line] = {}
        self.all_lines: list[Line] = []
        self.signals: list[signal.Signals] = []
        self.leadership: Leadership | None = None
        self.knows: dict[str, str] = {}  # hosts that cannot be reached, as far as it knows, and why
        self.heard: dict[str, float] = {}  # when hosts were heard last, unless they have left
        self._watched = Watched()
        self._tick_at = float("inf")
        self._probing: set[str] = set()
        self.published: tuple[int, Membership] | None = None
        if self.kind.led:
            world.after(0.0, self, "claim")
        else:
            world.after(0.0, self, "begin")

    # -------------------------------------------------------------- the beginning

    def claim(self) -> None:
        """Tries to lead the job."""
        if not self.alive:
            return
        arbiter, now = self.world.arbiter, self.world.now
        if not self.reaches_arbiter():
            self.world.after(LOOK_SECONDS, self, "claim")
            return
        arbiter.now = now
        record = arbiter.record
        self._watched = self._watched.seen(record, now)
        led = record is not None and not record.released
        over = self.resume and any(each.ended is not None for each in self.world.launchers)
        if over or (led and (self._watched.moved or not self.resume)):
            self.world.note(f"the launcher on {self.host} is refused")
            self.refused = self.over = True
            self.alive = False
            return
        if self._watched.may_claim(now):
            name = f"launcher {len(self.world.launchers)}"
            mine = Record("job", 0, name, 0, LEADERSHIP_SECONDS, False, 0, "")
            self.leadership = Leadership.claim(arbiter, self._watched, mine, now)
            if self.leadership is not None:
                self.world.after(RENEW_SECONDS, self, "renew")
                self.begin()
                return
        self.world.after(LOOK_SECONDS, self, "claim")

    def reaches_arbiter(self) -> bool:
        """Returns whether the arbiter answers it: it is on no host of the job."""
        host = self.world.hosts[self.host]
        return host.alive and not host.cut and self.world.now >= self.world.arbiter.away_until

    def _facts(self) -> JobFacts:
        kind, members, generation = self.kind, self.job.members, 0
        if self.resume:
            files = self.world.hosts[self.host].files.get(self.job.number)
            found = [files.note] if files and files.note else []
            generation = self.world.started + 1
            record = self._watched.record
            if record is not None:
                generation = record.generation + 1
                found += [Membership.parse(record.members)] if record.members else []
            members = max(found, key=lambda each: each.epoch, default=members)
        return JobFacts(
            id="job",
            members=members,
            hosts=self.job.members.hosts if kind.hosts else (),
            spare_hosts=kind.spares,
            generation=generation,
            resume=self.resume,
            led=kind.led,
            may_shrink=kind.shrinks,
            least_in_place=kind.least,
        )

    def begin(self) -> None:
        """The job begins, or is resumed."""
        if not self.alive:
            return
        self.machine = JobMachine(self._facts(), self.world.settings, self.world.now)
        self.listens = True
        self.world.note(f"the launcher on {self.host} begins (resume: {self.resume})")
        self.tell_leadership()
        for number in self.signals:
            self.give("signalled", number)
        self.give("begin")

    # -------------------------------------------------------------- events

    def give(self, event: str, *args: Any, **more: Any) -> None:
        """Gives the machine an event, and carries out its actions."""
        machine = self.machine
        if not self.alive or machine is None or self.ended is not None:
            return
        actions = getattr(machine, event)(*args, self.world.now, **more)
        if self.world.traced and (event not in ("said", "time_passed") or actions):
            named = [str(a) for a in actions if not checks.is_routine(a)]
            if named or event not in ("said", "time_passed", "leads"):
                shown = ", ".join(map(str, [*args, *more.items()]))
                self.world.note(f"{event}({shown}) in {machine.phase.name}")
            for text in named:
                self.world.note(f"    -> {text}")
        for action in actions:
            if self.ended is not None:
                raise Violation(f"{action} after the end")
            self._carry_out(action)
        checks.after_event(self.world)
        self._set_tick()

    def _set_tick(self) -> None:
        if self.ended is not None or self.machine is None:
            return
        due = max(self.machine.deadline, self.world.now)
        if due < self._tick_at:
            self._tick_at = due
            self.world.after(due - self.world.now, self, "tick", due)

    def tick(self, due: float) -> None:
        """A deadline has come."""
        if not self.alive or self.ended is not None or due != self._tick_at:
            return
        self._tick_at = float("inf")
        run = self.mpirun
        mpirun = MpirunSeen(7, run.stopped) if run and run.alive else MpirunSeen()
        self.give("time_passed", self._workers(), mpirun)
        self._resize()
        self._set_tick()

    def _workers(self) -> WorkersSeen:
        if self.job.number not in self.world.hosts[self.host].files:
            return WorkersSeen()
        begun = sum(1 for shim in self.world.live_shims() if shim.worker_acts())
        trains = self.job.step > 1 and self.world.parts is not None
        return WorkersSeen(min(begun, self.job.members.size), trains)

    def accept(self, shim: Shim) -> Line:
        """A shim connects."""
        line = Line(self.world, self, shim, len(self.all_lines) + 1)
        self.all_lines.append(line)
        self.lines[line.number] = line
        return line

    def hear(self, line: Line, message: Any) -> None:
        """A shim has said something."""
        name = line.shim.host
        self.knows.pop(name, None)
        self.heard[name] = self.world.now
        self.give("said", line.number, message)

    def line_ended(self, line: Line, *, hung_up: bool) -> None:
        """A line has ended."""
        if self.lines.pop(line.number, None) is not None:
            name = line.shim.host
            if hung_up and not any(each.shim.host == name for each in self.lines.values()):
                self.heard.pop(name, None)
            self.give("line_ended", line.number, hung_up=hung_up)

    def mpirun_over(self, generation: Generation, code: int) -> None:
        """mpirun has ended."""
        if generation is self.mpirun:
            self.mpirun = None
            lines = () if generation.agents else ("ssh: no route to host",)
            self.give("mpirun_ended", code, lines)

    def signalled(self, number: signal.Signals) -> None:
        """The user, or the scheduler, wants the job to end."""
        if self.over and self.world.parts is not None and self.alive:
            if not self.world.parts.over:
                self.world.parts.signalled(number)
            return
        self.signals.append(number)
        if self.machine is not None:
            self.give("signalled", number)

    def probed(self, host: str) -> None:
        """A probe has its outcome."""
        self._probing.discard(host)
        reason = "" if self.world.reaches(self.host, host) else "no route to host"
        self.knows.pop(host, None)
        if not reason:
            self.heard.pop(host, None)
        if reason:
            self.knows[host] = reason
        self.give("probed", host, reason)

    # -------------------------------------------------------------- leadership

    def renew(self) -> None:
        """Renews the leadership, as long as it has one."""
        if self.alive and not self.over and self.leadership:
            self.world.after(RENEW_SECONDS, self, "renew")
            self.world.after(ARBITER_SECONDS, self, "renewed", self.world.now)

    def renewed(self, begun: float) -> None:
        """The arbiter has answered, or not."""
        if not self.alive or self.over or self.leadership is None:
            return
        if self._at_arbiter():
            self.leadership.renew(begun)
        self.tell_leadership()

    def _at_arbiter(self) -> bool:
        self.world.arbiter.now = self.world.now
        return self.reaches_arbiter()

    def tell_leadership(self) -> None:
        if self.leadership is not None:
            self.give("leads", self.leadership.until, self.leadership.deposed)

    def record(self, generation: int, members: Membership, begun: float) -> None:
        """The record has what is published, or has not."""
        if not self.alive or self.ended is not None or self.leadership is None:
            return
        done = self._at_arbiter() and self.leadership.publish(generation, str(members), begun)
        self.tell_leadership()
        if done:
            self.published = (generation, members)
        self.give("published", done)

    # -------------------------------------------------------------- actions

    def _carry_out(self, action: do.Action) -> None:
        world = self.world
        match action:
            case do.Send() | do.EndLine():
                self._use_line(action)
            case do.Publish(generation, members):
                if self.leadership is None:
                    raise Violation(f"{action} in a job without a record")
                world.after(ARBITER_SECONDS, self, "record", generation, members, world.now)
            case do.StartAgents() | do.KillMpirun() | do.ContinueMpirun():
                self._use_mpirun(action)
            case do.Probe(host):
                self._probe(host)
            case do.HostsLeft() | do.HostsJoined():
                if world.parts is not None:
                    world.parts.told(action)
            case do.End():
                self.ended = action
                checks.ends(self, action)
                world.after(0.0, self, "clear")

    def _use_line(self, action: do.Send | do.EndLine) -> None:
        if isinstance(action, do.Send):
            checks.sent(self, action.line, action.message)
            self.lines[action.line].send("down", action.message)
        else:
            checks.sent(self, action.line, None)
            ended = self.lines.pop(action.line)
            ended.closed_here = True
            ended.send("down", None)

    def _use_mpirun(self, action: do.StartAgents | do.KillMpirun | do.ContinueMpirun) -> None:
        if isinstance(action, do.StartAgents):
            checks.starts(self, action)
            self.started.append(action.generation)
            self.world.started, self.world.epoch = action.generation, action.members.epoch
            self.mpirun = Generation(self, action)
            self.world.generations.append(self.mpirun)
        elif self.mpirun is not None:
            self.mpirun.kill() if isinstance(action, do.KillMpirun) else self.mpirun.let_continue()

    def _probe(self, host: str) -> None:
        if host not in self.world.hosts:
            raise Violation(f"a probe of a host that there is not: {host}")
        if host not in self._probing:
            self._probing.add(host)
            found = self.world.reaches(self.host, host)
            self.world.after(PROBE_SECONDS if found else NO_PROBE_SECONDS, self, "probed", host)

    # -------------------------------------------------------------- resizing

    def _resize(self) -> None:
        """Has the machine of the parts look whether there are other hosts."""
        parts, machine = self.world.parts, self.machine
        if parts is None or machine is None or self.ended is not None or not machine.may_change:
            return
        if change := parts.change():
            for host in change.added:
                self.knows.pop(host.name, None)  # it has reached it
                self.heard.pop(host.name, None)
            left = {
                rank: Left.MAY_RETURN if rank in self.job.left else Left.NO
                for rank in range(self.job.members.size)
            }
            self.give("change_due", change, left)

    # -------------------------------------------------------------- the end

    def die(self) -> None:
        """Its process is killed."""
        if not self.alive:
            return
        self.world.note(f"the launcher on {self.host} is killed")
        self.alive = self.listens = False
        self.over = True
        if self.world.parts is not None:
            self.world.parts.alive = False
        if self.mpirun is not None:
            self.mpirun.kill()
        self._close_lines()

    def _close_lines(self) -> None:
        for line in list(self.lines.values()):
            line.closed_here = True
            line.send("down", None)
        self.lines.clear()

    def clear(self) -> None:
        """Ends what is left of the job."""
        if not self.alive:
            return
        assert self.ended is not None
        assert self.machine is not None
        if self.mpirun is not None:
            self.mpirun.kill()
        stays = self.ended.files_stay or self.machine.deposed
        for line in list(self.lines.values()):
            line.send("down", Over(stays))
        self._close_lines()
        self.listens = False
        self.world.after(CLEAR_SECONDS, self, "cleared")

    def cleared(self) -> None:
        """What did not end on its host is killed."""
        if not self.alive:
            return
        assert self.ended is not None
        assert self.machine is not None
        host = self.world.hosts[self.host]
        if self.started and not self.machine.deposed:
            for shim in self.world.live_shims(self.host):
                if shim.job is self.job:
                    shim.end(files_stay=self.ended.files_stay)
            if not self.ended.files_stay:
                host.files.pop(self.job.number, None)
            if self.leadership is not None and self._at_arbiter():
                if self.ended.files_stay:
                    self.leadership.release(self.world.now)
                else:
                    self.leadership.remove()
        self.over = True
        self.world.note(f"the launcher has ended the job with {self.ended.code}")
        if self.world.parts is not None:
            self.world.parts.ended(self.ended)
