"""A simulated shim, with its worker: as shim/shim.py, with the real lease."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from job_world import LATE_STOP_SECONDS, leave_files
from world_line import Line

from hvd_ft.job.lifeline_messages import (
    AgentLost,
    Answer,
    Ask,
    Interrupt,
    Interrupted,
    Lease,
    Over,
    Preempt,
    ShimStatus,
    Stop,
)
from hvd_ft.members.act_lease import ActLease

if TYPE_CHECKING:
    from world_agent import Agent
    from world_launcher import Launcher

BEGIN_SECONDS = 0.2  # for an agent, or a worker, to begin
_NEVER = float("-inf")


class Worker:
    """A worker. It acts once it is ready, while its shim lets it."""

    def __init__(self, shim: Shim) -> None:
        self.shim = shim
        self.alive = True
        self.ready = False

    def make_ready(self) -> None:
        self.ready = True


class Shim:
    """A shim, as shim/shim.py, with the real lease."""

    def __init__(self, agent: Agent) -> None:
        generation = agent.generation
        self.world, self.job = generation.world, generation.job
        self.rank, self.host = agent.rank, agent.host
        self.boot = self.world.hosts[self.host].boot
        self.epoch = generation.members.places[generation.members.place_of(self.rank)].since
        self.generation = generation.number
        self.alive = True
        self.frozen_until = _NEVER
        self.orphaned = False
        self.keeps = False
        self.code: int | None = None
        self.agent: Agent | None = agent
        self.worker: Worker | None = None
        self.held = False  # a worker is to start as soon as it may act
        self.lease: ActLease | None = None
        self.is_open = True
        self.stopped = False
        self.acted_until = _NEVER  # at most, by leases that it has had
        self._silence = 0  # counts silences, and waits for agents
        self._late: list[tuple[Line, Any]] = []  # what it hears when it goes on
        self.line: Line | None = None
        self._begin_lease(generation.act_lease)
        self.launcher = generation.launcher
        self.known = generation.number > 0
        self.world.shims.append(self)
        self.lose_line()
        self.connect(self.launcher)

    # -------------------------------------------------------------- the lease

    def _begin_lease(self, seconds: float | None) -> None:
        self.lease = None if seconds is None else ActLease(seconds)
        self.is_open = seconds is None

    @property
    def frozen(self) -> bool:
        return self.world.now < self.frozen_until

    def lets_act(self) -> bool:
        """Returns whether its processes may still act: it stops them as late as it may."""
        if self.lease is None or self.is_open:
            return True
        return self.world.now < self.acted_until + LATE_STOP_SECONDS and not self.stopped

    def look_at_lease(self) -> None:
        if not self.alive or self.lease is None or not self.is_open:
            return
        if self.lease.holds(self.world.now):
            self.world.after(self.lease.until - self.world.now, self, "look_at_lease")
            return
        self.is_open = False
        self.world.after(LATE_STOP_SECONDS, self, "stop")

    def stop(self) -> None:
        """Stops its processes, unless it has a lease by now."""
        if not self.is_open and self.alive:
            self.stopped = True

    def _granted(self, number: int) -> None:
        if self.lease is None:
            return
        self.lease = self.lease.granted(number)
        if self.lease.holds(self.world.now):
            self.acted_until = max(self.acted_until, self.lease.until)
            if not self.is_open:
                self.is_open, self.stopped = True, False
                self.world.after(self.lease.until - self.world.now, self, "look_at_lease")
                if self.held:
                    self._start()

    # -------------------------------------------------------------- the launcher

    def lose_line(self) -> None:
        self._silence += 1
        limit = self.world.settings.host_timeout_seconds + self.world.settings.lease_seconds
        self.world.after(limit, self, "give_launcher_up", self._silence)

    def connect(self, launcher: Launcher) -> None:
        """Tries to reach its launcher."""
        if not self.alive or launcher is not self.launcher or self.line is not None:
            return
        if self.frozen or not self.world.reaches(self.host, launcher.host):
            self.world.after(1.0, self, "connect", launcher)
        elif launcher.listens:
            self.known = True
            self._silence += 1
            self.line = launcher.accept(self)
            self.tell()
        elif self.known:
            self.world.note(f"rank {self.rank}'s shim on {self.host}: the launcher is dead")
            self.end(files_stay=False)
        else:
            self.world.after(1.0, self, "connect", launcher)

    def line_ended(self, line: Line) -> None:
        if self.alive and line is self.line:
            self.line = None
            self.lose_line()
            self.connect(self.launcher)

    def give_launcher_up(self, silence: int) -> None:
        if self.alive and silence == self._silence and self.known and self.line is None:
            self.end(files_stay=self.keeps)

    def tell(self) -> None:
        """Sends its status."""
        if self.line is not None:
            key = f"{self.host}/{self.boot}"
            rank, code = self.rank, self.code
            status = ShimStatus(rank, key, self.generation, self.orphaned, code, self.epoch)
            self.line.send("up", status)

    def hear(self, line: Line, message: Any) -> None:
        if not self.alive or line is not self.line:
            return
        if self.frozen:
            self._late.append((line, message))
            return
        match message:
            case Ask(number):
                if self.lease is not None:
                    self.lease = self.lease.answered(number, self.world.now)
                line.send("up", Answer(number))
            case Lease(number):
                self._granted(number)
            case Over(files_stay):
                self.end(files_stay=files_stay)
            case Interrupt():
                if self.agent and self.agent.alive and self.worker and self.worker.ready:
                    line.send("up", Interrupted())
            case Preempt() | Stop():
                if self.agent and self.agent.alive:
                    self.agent.asked(message)

    def thaw(self) -> None:
        """Goes on after it was stopped."""
        late, self._late = self._late, []
        for line, message in late:
            self.hear(line, message)
        self.look_at_lease()

    # -------------------------------------------------------------- agent and worker

    def agent_gone(self, agent: Agent) -> None:
        """Its agent has died."""
        if not self.alive or agent is not self.agent:
            return
        if self.frozen:
            self.world.after(self.frozen_until - self.world.now, self, "agent_gone", agent)
            return
        self.agent = None
        if not self.keeps or not self.known:
            if self.line is not None and self.code is None:
                self.line.send("up", AgentLost())
            self.end(files_stay=False)
            return
        self.orphaned = True
        settings = self.world.settings
        limit = settings.host_timeout_seconds + settings.adoption_timeout_seconds
        self.world.after(limit, self, "leave_files", self.generation)
        self.tell()

    def leave_files(self, generation: int) -> None:
        if self.alive and self.orphaned and self.generation == generation:
            self.end(files_stay=True)

    def reattached(self, agent: Agent) -> bool:
        """Takes a new agent; returns whether it does."""
        number = agent.generation.number
        if not self.keeps or number <= self.generation or self.frozen:
            return False
        old, self.agent = self.agent, agent
        if old is not None:
            old.die("replaced")
        self.generation, self.orphaned = number, False
        launcher = agent.generation.launcher
        if launcher is self.launcher:
            self.tell()
        else:
            if self.line is not None:
                self._hang_up()
            self._begin_lease(agent.generation.act_lease)
            self.launcher, self.known = launcher, True
            self.lose_line()
            self.connect(launcher)
        self.stop()
        return True

    def start_worker(self) -> None:
        """Starts a worker, now or as soon as it may act."""
        if self.worker is None or not self.worker.alive:
            self.held = True
            if self.is_open:
                self._start()

    def _start(self) -> None:
        self.held = False
        self.worker = Worker(self)
        self.world.after(BEGIN_SECONDS, self.worker, "make_ready")

    def worker_acts(self) -> bool:
        """Returns whether its worker acts now."""
        worker = self.worker
        host = self.world.hosts[self.host]
        lives = self.alive and host.alive and worker is not None and worker.alive
        return lives and worker is not None and worker.ready and self.lets_act()

    def release(self, code: int) -> None:
        """The job is over for its agent."""
        self.keeps, self.code = False, code
        self.end_worker()
        self.tell()

    def end_worker(self) -> None:
        self.held = False
        if self.worker:
            self.worker.alive = False

    # -------------------------------------------------------------- the end

    def end(self, *, files_stay: bool) -> None:
        """Ends all that it has, and itself."""
        if not self.alive:
            return
        self.alive = False
        self.end_worker()
        if self.agent is not None:
            self.agent.die("ended by its shim")
        if self.line is not None:
            self._hang_up()
        leave_files(self.world, self.host, self.job, files_stay=files_stay)

    def is_killed(self) -> None:
        """Its worker dies with it."""
        self.alive = False
        self.end_worker()
        if self.line is not None:
            self._hang_up()

    def die(self) -> None:
        """It is killed; its agent starts another one."""
        if not self.alive:
            return
        self.is_killed()
        agent = self.agent
        if agent is not None and agent.alive:
            self.world.after(BEGIN_SECONDS, agent, "replace_shim")
        else:
            leave_files(self.world, self.host, self.job, files_stay=False)

    def _hang_up(self) -> None:
        assert self.line is not None
        line, self.line = self.line, None
        line.closed_there = True
        line.send("up", None)
