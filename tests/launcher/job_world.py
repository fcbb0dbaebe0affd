"""A simulated world that drives the real machine of the launcher (hvd_ft/launcher/machine/).

The rules are real: `JobMachine`, `ActLease`, `Leadership`, `HostPool`, `Membership`. What surrounds
them is simulated: hosts, links, shims, agents, workers and mpirun (world_shim.py, world_agent.py,
world_generation.py), the drivers of the machines (world_launcher.py, world_parts.py), the arbiter
of two launchers (world_arbiter.py). Faults are in world_faults.py, what must hold in
world_checks.py, and job_explorer.py goes through pairs of faults.

Nothing is random and nothing waits: events happen in the order of their times on a simulated clock.
So a world can be copied at any event, and every run can be repeated from its faults alone.
"""

from __future__ import annotations

import heapq
import pickle
from dataclasses import dataclass, field
from typing import Any

from hvd_ft.job.settings import Settings
from hvd_ft.members.hosts import Host
from hvd_ft.members.membership import Membership

STEPS = 14  # of a job
STEP_SECONDS = 0.5
SNAPSHOT_STEPS = 4
LATENCY = 0.01
ELASTIC_SECONDS = 30.0
FENCE_SECONDS = 3.0
# What a shim needs to stop its processes, nearly all of what it may need.
LATE_STOP_SECONDS = 0.9 * FENCE_SECONDS / 3


class Violation(AssertionError):
    """Something that must not happen."""


@dataclass(frozen=True)
class JobKind:
    """A kind of job.

    Attributes:
        name: of the kind.
        hosts: of `-H`; none: one host.
        size: number of ranks.
        spares: of `--spare-hosts`.
        least: of `--in-place`: ranks with which the running job goes on; None: without it.
        fewest: ranks of `--min-np`: the job continues in parts; 0: it does not.
        led: whether it has a record, so that a second launcher can take over.
        grace: whether SIGTERM leaves time for a checkpoint.
        from_checkpoint: whether it continues from the checkpoint of another job.
        launcher: the host of the launcher.
        others: hosts that may be found later.
    """

    name: str
    hosts: tuple[Host, ...]
    size: int
    spares: tuple[Host, ...] = ()
    least: int | None = None
    fewest: int = 0
    led: bool = False
    grace: bool = False
    from_checkpoint: bool = False
    launcher: str = "n0"
    others: tuple[Host, ...] = ()

    @property
    def shrinks(self) -> bool:
        """Whether the job continues in parts."""
        return self.fewest > 0

    @property
    def fences(self) -> bool:
        """Whether hosts act under leases."""
        return bool(self.spares) or self.least is not None or self.shrinks

    @property
    def settings(self) -> Settings:
        """The limits, short ones that keep the order of the real ones."""
        checkpoints = self.grace or self.shrinks
        return Settings(
            suspect_seconds=2.0,
            lease_seconds=5.0,
            host_timeout_seconds=14.0,
            fence_seconds=FENCE_SECONDS,
            adoption_timeout_seconds=9.0,
            start_timeout_seconds=20.0,
            stop_grace_seconds=1.0,
            checkpoint_dir="/checkpoints" if checkpoints else None,
            checkpoint_timeout_seconds=3.0,
            grace_seconds=3.0 if checkpoints else None,
            max_failures=8,
        )


@dataclass
class Files:
    """A job's directory on a host.

    Attributes:
        note: the membership for which it is complete (member_file.py).
        kept: whether it stays when the job's last process leaves.
    """

    note: Membership | None = None
    kept: bool = False


@dataclass
class SimHost:
    """A host: whether it lives, whether its link is cut, and its files of each part of the job."""

    name: str
    alive: bool = True
    cut: bool = False
    boot: int = 0
    files: dict[int, Files] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """As host_key.py."""
        return f"{self.name}/{self.boot}"


@dataclass
class Job:
    """The state of one part of a job, which is replicated: it lives as long as any host has it.

    Attributes:
        number: of the part.
        members: the first membership.
        step: of the training.
        over: the exit code, once it is decided.
        left: the ranks that have left the running job.
        leaves: whether it is to end with a checkpoint as soon as it can.
        checkpoint: the step of the latest one.
        busy_until: until when a checkpoint is being written.
        begun: whether its files were complete once.
    """

    number: int
    members: Membership
    step: int = 0
    over: int | None = None
    left: set[int] = field(default_factory=set)
    leaves: bool = False
    checkpoint: int = 0
    busy_until: float = 0.0
    begun: bool = False


class World:
    """All of it.

    Args:
        kind: of the job.
        traced: whether what happens is noted in `trace`.

    Attributes:
        now: the time. events: how many have happened. last_fault: when.
        faults: that have struck, in words.
    """

    def __init__(self, kind: JobKind, *, traced: bool = False) -> None:
        from world_launcher import Launcher

        self.kind = kind
        self.settings = kind.settings
        self.now = 1000.0
        self.events = 0
        self.traced = traced
        self.trace: list[str] = []
        self._queue: list[tuple[float, int, Any, str, tuple[Any, ...]]] = []
        self._number = 0
        named = kind.hosts or (Host("n0", kind.size),)
        names = [host.name for host in (*named, *kind.spares, *kind.others)]
        self.hosts = {name: SimHost(name) for name in dict.fromkeys([*names, kind.launcher])}
        self.shims: list[Any] = []
        self.generations: list[Any] = []
        self.launchers: list[Launcher] = []
        self.arbiter: Any = None
        self.last_fault = self.now
        self.faults: list[str] = []
        self.happened: set[str] = set()  # kinds of what may excuse an end
        self.silent_seconds = 0.0  # of all hosts
        self.named = list(named)  # what the user, or the discovery script, names now
        members = Membership.first(named, kind.size)
        self.job = Job(1, members)
        self.started = 0  # the latest generation of this part
        self.epoch = 0  # of it
        if kind.from_checkpoint:
            self.job.checkpoint = self.job.step = SNAPSHOT_STEPS
        if kind.led:
            from world_arbiter import MemoryArbiter

            self.arbiter = MemoryArbiter()
        self.after(STEP_SECONDS, self, "train")
        self.parts: Any = None
        if kind.shrinks:
            from world_parts import Parts

            self.parts = Parts(self, kind.launcher)
            while not self.launchers:
                self.step()
        else:
            self.launchers.append(Launcher(self, kind.launcher, resume=False))

    # -------------------------------------------------------------- time

    def after(self, seconds: float, target: Any, method: str, *args: Any) -> None:
        """Has something happen later."""
        self._number += 1
        heapq.heappush(self._queue, (self.now + seconds, self._number, target, method, args))

    def step(self) -> bool:
        """Has the next event happen; returns whether there was one."""
        if not self._queue:
            return False
        at, _, target, method, args = heapq.heappop(self._queue)
        self.now = max(self.now, at)
        self.events += 1
        getattr(target, method)(*args)
        return True

    def note(self, text: str) -> None:
        """Notes what happens, for the reader of a violation."""
        if self.traced:
            self.trace.append(f"{self.now - 1000:7.2f} s  {text}")

    def freeze(self) -> bytes:
        """Returns what `thaw` makes worlds of that go on like this one."""
        return pickle.dumps(self, pickle.HIGHEST_PROTOCOL)

    @staticmethod
    def thaw(kept: bytes) -> World:
        """Returns a copy of a world."""
        world: World = pickle.loads(kept)
        return world

    # -------------------------------------------------------------- hosts

    def reaches(self, one: str, other: str) -> bool:
        """Returns whether two hosts reach each other now."""
        a, b = self.hosts[one], self.hosts[other]
        return a.alive and b.alive and (one == other or not (a.cut or b.cut))

    def changed_links(self) -> None:
        """Delivers what had to wait for a link."""
        for launcher in self.launchers:
            for line in list(launcher.all_lines):
                line.flush()
        for generation in self.generations:
            generation.heard_again()

    @property
    def launcher(self) -> Any:
        """The latest launcher."""
        return self.launchers[-1]

    @property
    def generation(self) -> Any:
        """The latest generation of agents of this part that was started; None: there is none."""
        return self.generations[-1] if self.generations else None

    def live_shims(self, host: str | None = None) -> list[Any]:
        """Returns the shims that live, of all parts."""
        return [
            shim
            for shim in self.shims
            if shim.alive and self.hosts[shim.host].alive and host in (None, shim.host)
        ]

    # -------------------------------------------------------------- training

    def train(self) -> None:
        """The job comes to its next step, if all ranks work."""
        self.after(STEP_SECONDS, self, "train")
        generation = self.generation
        if generation is None or generation.job is not self.job or self.job.over is not None:
            return
        if not generation.works():
            return
        self._begin_roster(generation)
        ranks = [rank for rank in range(self.job.members.size) if rank not in self.job.left]
        if not all(generation.worker_acts(rank) for rank in ranks):
            return
        self.job.step += 1
        if self.job.step % SNAPSHOT_STEPS == 0:
            self.job.checkpoint = self.job.step
        if self.job.step >= STEPS:
            self.note("the training has come to its end")
            generation.decide(0)
        elif self.job.leaves and self.now >= self.job.busy_until:
            self.job.checkpoint = self.job.step
            generation.decide(143)

    def _begin_roster(self, generation: Any) -> None:
        """Has ranks leave, and return, at a step boundary."""
        if self.job.step == 0:
            return
        for rank in range(self.job.members.size):
            leaving = rank in generation.members.leaving
            if leaving and rank not in self.job.left and generation.worker_acts(rank):
                self.note(f"rank {rank} leaves the running job")
                self.job.left.add(rank)
                generation.end_worker(rank)
            elif not leaving and rank in self.job.left and generation.worker_acts(rank):
                self.note(f"rank {rank} returns to the running job")
                self.job.left.discard(rank)


def leave_files(world: World, host: str, job: Job, *, files_stay: bool) -> None:
    """A process leaves the job's directory; the last one removes it."""
    files = world.hosts[host].files.get(job.number)
    if files is None:
        return
    files.kept = files.kept or files_stay
    held = any(shim.job is job for shim in world.live_shims(host))
    if not held and not files.kept:
        del world.hosts[host].files[job.number]
