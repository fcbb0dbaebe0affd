"""The processes of a simulated job: life-lines, shims with their workers, agents, mpirun."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from job_world import LATE_STOP_SECONDS, LATENCY, Files, Job, World

from hvd_ft.job.lifeline_messages import (
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
    from world_launcher import Launcher

BEGIN_SECONDS = 0.2  # for an agent, or a worker, to begin
MEET_SECONDS = 0.1
RETRY_SECONDS = 0.25
FINALIZE_SECONDS = 4.0  # for an agent to wait for others at the end of the job
_NEVER = float("-inf")
BAD_INPUT = 2


class Line:
    """A life-line. What is sent while the link is cut arrives later, unless that lasts too long."""

    def __init__(self, world: World, launcher: Launcher, shim: Shim, number: int) -> None:
        self.world, self.launcher, self.shim, self.number = world, launcher, shim, number
        self.closed_here = False  # at the launcher's end
        self.closed_there = False  # at the shim's end
        self._waiting: list[tuple[str, Any]] = []
        self._cut_since: float | None = None

    @property
    def passes(self) -> bool:
        return self.world.reaches(self.launcher.host, self.shim.host)

    def send(self, way: str, message: Any) -> None:
        """Sends a message: `up` to the launcher, `down` to the shim; `end`, when a side closes."""
        self.world.after(LATENCY, self, "arrive", way, message)

    def arrive(self, way: str, message: Any) -> None:
        if self._waiting or not self.passes:
            self._waiting.append((way, message))
            self.watch_cut()
            return
        self._deliver(way, message)

    def _deliver(self, way: str, message: Any) -> None:
        if way == "up" and not self.closed_here:
            if message is None:
                self.close_here(hung_up=True)
            else:
                self.launcher.hear(self, message)
        elif way == "down" and not self.closed_there:
            if message is None:
                self.closed_there = True
                self.shim.line_ended(self)
            else:
                self.shim.hear(self, message)

    def flush(self) -> None:
        """Delivers what has waited, if the link is there again."""
        if not self.passes:
            self.watch_cut()
            return
        self._cut_since = None
        waiting, self._waiting = self._waiting, []
        for way, message in waiting:
            self._deliver(way, message)

    def watch_cut(self) -> None:
        if self._cut_since is None and not (self.closed_here and self.closed_there):
            self._cut_since = self.world.now
            lease = self.world.settings.lease_seconds
            self.world.after(lease, self, "break_if_cut", self._cut_since)

    def break_if_cut(self, since: float) -> None:
        """TCP gives up at both ends."""
        if self._cut_since != since or self.passes:
            return
        self._waiting = []
        if not self.closed_here:
            self.close_here(hung_up=False)
        if not self.closed_there:
            self.closed_there = True
            self.shim.line_ended(self)

    def close_here(self, *, hung_up: bool) -> None:
        """The launcher's end is closed, and it is told."""
        self.closed_here = True
        self.launcher.line_ended(self, hung_up=hung_up)


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

    def die(self) -> None:
        """It is killed; its worker dies with it, and its agent starts another one."""
        if not self.alive:
            return
        self.alive = False
        self.end_worker()
        if self.line is not None:
            self._hang_up()
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


def leave_files(world: World, host: str, job: Job, *, files_stay: bool) -> None:
    """A process leaves the job's directory; the last one removes it."""
    files = world.hosts[host].files.get(job.number)
    if files is None:
        return
    files.kept = files.kept or files_stay
    held = any(shim.job is job for shim in world.live_shims(host))
    if not held and not files.kept:
        del world.hosts[host].files[job.number]


class Agent:
    """An agent of a generation."""

    def __init__(self, generation: Any, rank: int, host: str) -> None:
        self.generation, self.rank, self.host = generation, rank, host
        self.world: World = generation.world
        self.alive = True
        self.ended = False  # in good order
        self.code: int | None = None
        self.frozen_until = _NEVER
        self._asked: list[Any] = []
        self.shim: Shim | None = None

    def begin(self) -> None:
        """Finds its shim, or starts one."""
        files = self.world.hosts[self.host].files.get(self.generation.job.number)
        found = None
        if self.generation.number > 0 and is_current(files, self.generation.members, self.rank):
            found = self._shim_there()
        if found is None:
            self.shim = Shim(self)
        elif found.reattached(self):
            self.shim = found
        else:
            self.world.note(f"rank {self.rank}'s shim on {self.host} refuses the agent")
            self.die("refused")

    def _shim_there(self) -> Shim | None:
        for shim in self.world.live_shims(self.host):
            if shim.job is self.generation.job and shim.rank == self.rank and shim.keeps:
                return shim
        return None

    @property
    def able(self) -> bool:
        """Whether it runs."""
        frozen = self.world.now < self.frozen_until
        shim = self.shim
        return self.alive and not frozen and shim is not None and not shim.stopped

    def asked(self, message: Any) -> None:
        """The launcher wants the job to end."""
        self._asked.append(message)
        self.look_at_asked()

    def look_at_asked(self) -> None:
        if not self.generation.complete or not self.able:
            return
        for message in self._asked:
            if isinstance(message, Preempt):
                self.generation.job.leaves = True
            else:
                self.generation.decide(128 + message.signal)
        self._asked = []

    def die(self, why: str) -> None:
        if not self.alive:
            return
        self.alive = False
        if why == "killed":
            self.world.note(f"agent of rank {self.rank} on {self.host} dies")
        if self.shim is not None:
            self.world.after(LATENCY, self.shim, "agent_gone", self)
        self.world.after(0.2, self.generation, "agent_ended", self)

    def replace_shim(self) -> None:
        """Its shim has died."""
        if not self.alive or (self.shim is not None and self.shim.alive):
            return
        if not self.generation.complete:
            self.die("it has no shim")
            return
        held, self.shim = self.shim, Shim(self)
        assert held is not None
        self.shim.keeps, self.shim.known = held.keeps, held.known
        if self.rank not in self.generation.job.left and self.code is None:
            self.shim.start_worker()

    def learn(self, code: int) -> None:
        """It learns that the job is over."""
        if not self.alive or self.code is not None:
            return
        if not self.able:
            self.world.after(RETRY_SECONDS, self, "learn", code)
            return
        self.code = code
        if self.shim is not None:
            self.shim.release(code)
        self.world.after(FINALIZE_SECONDS, self, "leave")
        self.generation.one_has_learnt()

    def leave(self) -> None:
        """It ends in good order, and its shim with it."""
        if not self.alive:
            return
        self.alive, self.ended = False, True
        if self.shim is not None:
            self.shim.agent = None
            self.shim.end(files_stay=False)
        leave_files(self.world, self.host, self.generation.job, files_stay=False)
        self.world.after(LATENCY, self.generation, "agent_ended", self)


def is_current(files: Files | None, members: Any, rank: int) -> bool:
    """As member_file.py."""
    if files is None or files.note is None:
        return False
    number = members.place_of(rank)
    return bool(files.note.places[number].since == members.places[number].since)
