"""The faults of a simulated world: each is something that happens to it at a moment."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass

from job_world import JobKind, World
from world_launcher import Launcher

from hvd_ft.launcher.machine.host_leases import ASK_SECONDS

FREEZE_SECONDS = 1.5
SECOND_LAUNCHER_SECONDS = 1.0


@dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
        kind: the function of this file that has it happen.
        target: a rank, a host, or seconds, by kind.
    """

    kind: str
    target: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        more = f" for {self.seconds:g} s" if self.seconds else ""
        return f"{self.kind.replace('_', ' ')} {self.target}{more}".strip() + ""

    def strike(self, world: World) -> None:
        """Has it happen now."""
        world.note(f"=== {self}")
        world.faults.append(str(self))
        world.last_fault = max(world.last_fault, world.now)
        HAPPENS[self.kind](world, self)


def _shim(world: World, rank: int) -> object | None:
    found = [shim for shim in world.live_shims() if shim.rank == rank and shim.job is world.job]
    return found[-1] if found else None


def worker_dies(world: World, fault: Fault) -> None:
    """The worker of a rank is killed."""
    for shim in world.live_shims():
        if shim.rank == int(fault.target) and shim.worker is not None:
            shim.worker.alive = False


def _early(world: World) -> None:
    if not world.job.begun or world.generation is None or not world.generation.complete:
        world.happened.add("early")


def agent_dies(world: World, fault: Fault) -> None:
    """The agent of a rank is killed."""
    _early(world)
    if world.generation and (agent := world.generation.agents.get(int(fault.target))):
        agent.die("killed")


def agents_of_host_die(world: World, fault: Fault) -> None:
    """All agents of a host are killed."""
    _early(world)
    for agent in list(world.generation.agents.values()) if world.generation else ():
        if agent.host == fault.target:
            agent.die("killed")


def proxy_dies(world: World, fault: Fault) -> None:
    """Hydra's proxy of a host is killed, and its agents die with it: mpirun does not notice."""
    _early(world)
    for agent in list(world.generation.agents.values()) if world.generation else ():
        if agent.host == fault.target:
            agent.unnoticed = True
            agent.die("killed")


def processes_of_host_die(world: World, fault: Fault) -> None:
    """All of a job's processes on a host are killed; the host lives."""
    world.happened.add("shim dies")
    _early(world)
    agents = list(world.generation.agents.values()) if world.generation else []
    for agent in agents:
        if agent.host == fault.target:
            agent.die("killed")
    for shim in world.live_shims(fault.target):
        shim.die()


def shim_dies(world: World, fault: Fault) -> None:
    """The shim of a rank is killed."""
    _early(world)
    world.happened.add("shim dies")
    shim = _shim(world, int(fault.target))
    if shim is not None:
        shim.die()  # type: ignore[attr-defined]


def mpirun_dies(world: World, fault: Fault) -> None:
    """mpirun is killed."""
    _early(world)
    if not world.job.begun:
        world.happened.add("mpirun killed early")
    if world.launcher.mpirun is not None:
        world.launcher.mpirun.kill()


def mpirun_stops(world: World, fault: Fault) -> None:
    """mpirun is stopped by a signal."""
    world.happened.add("mpirun stopped")
    if world.launcher.mpirun is not None:
        world.launcher.mpirun.stop()


def host_dies(world: World, fault: Fault) -> None:
    """A host loses its power."""
    host = world.hosts[fault.target]
    _early(world)
    world.happened.add("host gone")
    _power_off(world, fault.target)
    host.cut = False
    world.changed_links()
    _maybe_second_launcher(world)


def host_restarts(world: World, fault: Fault) -> None:
    """A host loses its power, and is back soon, without its memory."""
    _early(world)
    world.happened.add("host gone")
    _power_off(world, fault.target)
    world.changed_links()
    world.after(fault.seconds, world_returns, "revive", world, fault.target)
    world.last_fault = world.now + fault.seconds
    _maybe_second_launcher(world)


def _power_off(world: World, name: str) -> None:
    host = world.hosts[name]
    for shim in world.live_shims(name):
        shim.alive = False
        shim.end_worker()
    for generation in world.generations:
        for agent in generation.agents.values():
            if agent.host == name:
                agent.alive = False
    for launcher in world.launchers:
        if launcher.host == name:
            launcher.alive = launcher.listens = False
            launcher.over = True
            if world.parts is not None:
                world.parts.alive = False
            if launcher.mpirun is not None:
                launcher.mpirun.alive = False
    host.alive = False
    host.files = {}


class _Returns:
    """What happens to hosts later."""

    @staticmethod
    def revive(world: World, name: str) -> None:
        host = world.hosts[name]
        world.note(f"=== {name} is back")
        host.alive, host.boot = True, host.boot + 1
        world.changed_links()

    @staticmethod
    def heal(world: World, name: str) -> None:
        world.note(f"=== {name} is connected again")
        world.hosts[name].cut = False
        world.changed_links()


world_returns = _Returns


def host_is_cut(world: World, fault: Fault) -> None:
    """A host's link is cut, for some time."""
    host = world.hosts[fault.target]
    if fault.seconds > world.settings.fence_seconds - 1:
        _early(world)
    _silent(world, fault.seconds)
    host.cut = True
    world.happened.add("cut")
    world.changed_links()
    world.after(fault.seconds, world_returns, "heal", world, fault.target)
    world.last_fault = max(world.last_fault, world.now + fault.seconds)
    _maybe_second_launcher(world)


def _silent(world: World, seconds: float) -> None:
    """A host does not answer for some time, maybe right after it has not for another reason."""
    limit = world.settings.host_timeout_seconds
    if world.kind.fences:
        limit = world.settings.fence_seconds
    world.silent_seconds += seconds
    if world.silent_seconds > limit - ASK_SECONDS:  # its last answer may be so old
        world.happened.add("host gone")


def host_withdrawn(world: World, fault: Fault) -> None:
    """The user does not name a host any more."""
    world.named = [host for host in world.named if host.name != fault.target]


def host_found(world: World, fault: Fault) -> None:
    """The user names one more host."""
    known = (*world.kind.others, *world.kind.hosts)
    found = next(host for host in known if host.name == fault.target)
    if found not in world.named:
        world.named = [*world.named, found]


def spare_away(world: World, fault: Fault) -> None:
    """A spare host is cut off, for some time."""
    world.happened.add("spare gone")
    host_is_cut(world, fault)


def preempted(world: World, fault: Fault) -> None:
    """The scheduler sends SIGTERM."""
    _early(world)
    world.launcher.signalled(signal.SIGTERM)


def interrupted(world: World, fault: Fault) -> None:
    """The user presses Ctrl-C."""
    _early(world)
    world.launcher.signalled(signal.SIGINT)


def launcher_dies(world: World, fault: Fault) -> None:
    """The process of the launcher is killed."""
    world.launcher.die()
    _maybe_second_launcher(world)


def _maybe_second_launcher(world: World) -> None:
    """The user starts another launcher if the present one is dead or cut off."""
    if world.kind.led:
        world.after(SECOND_LAUNCHER_SECONDS, _SecondLauncher, "start", world)


class _SecondLauncher:
    """Somebody who starts a second launcher."""

    @staticmethod
    def start(world: World) -> None:
        first = world.launcher
        host = world.hosts[first.host]
        if first.ended is not None or (first.alive and not host.cut):
            return
        names = [place.host for place in world.job.members.places]
        for name in (*names, *world.hosts):
            other = world.hosts[name]
            if name != first.host and other.alive and not other.cut:
                world.happened.add("second launcher")
                world.launchers.append(Launcher(world, name, resume=True))
                return


def arbiter_away(world: World, fault: Fault) -> None:
    """The directory that all hosts share does not answer."""
    if world.arbiter is not None:
        world.arbiter.away_until = world.now + fault.seconds
        world.last_fault = max(world.last_fault, world.now + fault.seconds)
        world.happened.add("arbiter away")


def other_launcher(world: World, fault: Fault) -> None:
    """Another launcher takes the job over although this one lives."""
    if world.arbiter is not None and world.arbiter.record is not None:
        from dataclasses import replace

        record = world.arbiter.record
        world.arbiter.record = replace(record, term=record.term + 1, beat=record.beat + 1)
        world.happened.add("deposed")


def checkpoint_begins(world: World, fault: Fault) -> None:
    """A checkpoint is being written, for some time."""
    world.job.busy_until = world.now + fault.seconds


def shim_freezes(world: World, fault: Fault) -> None:
    """The shim of a rank is stopped, for a short time."""
    shim = _shim(world, int(fault.target))
    if shim is not None:
        _silent(world, fault.seconds)
        shim.frozen_until = world.now + fault.seconds  # type: ignore[attr-defined]
        world.after(fault.seconds, shim, "thaw")
        world.last_fault = max(world.last_fault, world.now + fault.seconds)


def agent_freezes(world: World, fault: Fault) -> None:
    """The agent of a rank is stopped, until its shim kills it."""
    _early(world)
    if world.generation and (agent := world.generation.agents.get(int(fault.target))):
        agent.frozen_until = float("inf")
        world.after(world.settings.lease_seconds, agent, "die", "killed")
        world.last_fault = max(world.last_fault, world.now + world.settings.lease_seconds)


HAPPENS: dict[str, Callable[[World, Fault], None]] = {
    function.__name__: function
    for function in (
        worker_dies,
        agent_dies,
        agents_of_host_die,
        proxy_dies,
        processes_of_host_die,
        shim_dies,
        mpirun_dies,
        mpirun_stops,
        host_dies,
        host_restarts,
        host_is_cut,
        host_withdrawn,
        host_found,
        spare_away,
        preempted,
        interrupted,
        launcher_dies,
        arbiter_away,
        other_launcher,
        checkpoint_begins,
        shim_freezes,
        agent_freezes,
    )
}


def faults_of(kind: JobKind) -> list[Fault]:
    """Returns the faults that a kind of job is tried with."""
    hosts = [host.name for host in kind.hosts]
    last = str(kind.size - 1)
    found = [
        Fault("worker_dies", last),
        Fault("agent_dies", "0"),
        Fault("agent_dies", last),
        Fault("shim_dies", last),
        Fault("mpirun_dies"),
        Fault("mpirun_stops"),
        Fault("preempted"),
        Fault("interrupted"),
        Fault("launcher_dies"),
        Fault("shim_freezes", last, FREEZE_SECONDS),
        Fault("agent_freezes", last),
    ]
    if kind.grace or kind.shrinks:
        found.append(Fault("checkpoint_begins", "", 2.0))
    for name in hosts[-1:]:
        found += [Fault("agents_of_host_die", name), Fault("processes_of_host_die", name)]
        found.append(Fault("proxy_dies", name))
    if kind.launcher not in hosts and hosts:
        found.append(Fault("host_is_cut", kind.launcher, 7.0))
    for name in {*hosts[:1], *hosts[-1:]}:
        found += [
            Fault("host_dies", name),
            Fault("host_is_cut", name, 2.5),
            Fault("host_is_cut", name, 7.0),
            Fault("host_is_cut", name, 22.0),
        ]
    for name in hosts[-1:]:
        found.append(Fault("host_restarts", name, 6.0))
    if kind.least is not None or kind.shrinks:
        found += [Fault("host_withdrawn", name) for name in hosts[-1:]]
        found += [Fault("host_found", host.name) for host in (*kind.others, *kind.hosts[-1:])]
    found += [Fault("spare_away", host.name, 5.0) for host in kind.spares[:1]]
    if kind.led:
        found += [Fault("arbiter_away", "", seconds) for seconds in (6.0, 30.0)]
        found.append(Fault("other_launcher"))
    return sorted(found, key=str)
