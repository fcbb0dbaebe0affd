"""What must hold in a simulated world, whatever fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from job_world import STEPS, Violation, World

from hvd_ft.job.lifeline_messages import Ask, Lease
from hvd_ft.launcher.machine import actions as do
from hvd_ft.launcher.machine.host_leases import ASK_SECONDS

if TYPE_CHECKING:
    from world_launcher import Launcher


def is_routine(action: do.Action) -> bool:
    """Returns whether an action only keeps leases alive."""
    return isinstance(action, do.Send) and isinstance(action.message, Ask | Lease)


def after_event(world: World) -> None:
    """No rank acts twice, and nothing of an earlier part acts beside a later one."""
    acting: dict[int, str] = {}
    parts: dict[int, str] = {}
    for shim in world.shims:
        if not shim.alive or not shim.worker_acts():
            continue
        where = f"rank {shim.rank} on {shim.host} (epoch {shim.epoch}, part {shim.job.number})"
        if shim.rank in acting and shim.job is world.job:
            raise Violation(f"two act: {where} and {acting[shim.rank]}")
        if shim.job is world.job:
            acting[shim.rank] = where
        parts[shim.job.number] = where
    if len(parts) > 1:
        raise Violation(f"two parts act: {', '.join(parts.values())}")


def sent(launcher: Launcher, line: int, message: Any) -> None:
    """A message goes over a line that there is; leases only from the launcher that leads."""
    if line not in launcher.lines:
        raise Violation(f"{message} over line {line}, which has ended")
    if isinstance(message, Lease):
        if not launcher.kind.fences:
            raise Violation("a lease in a job without leases")
        if not _leads(launcher):
            raise Violation("a lease from a launcher that does not lead")


def _leads(launcher: Launcher) -> bool:
    leadership = launcher.leadership
    return leadership is None or leadership.holds(launcher.world.now)


def starts(launcher: Launcher, start: do.StartAgents) -> None:
    """A generation can start, and only now."""
    world, members = launcher.world, start.members
    if launcher.mpirun is not None:
        raise Violation(f"{start} while mpirun runs")
    if not _leads(launcher):
        raise Violation(f"{start} by a launcher that does not lead")
    if start.generation <= world.started and (launcher.started or launcher.resume):
        raise Violation(f"{start}, after generation {world.started}")
    if members.epoch < world.epoch:
        raise Violation(f"{start}, after epoch {world.epoch}")
    if launcher.kind.led and launcher.published != (start.generation, members):
        raise Violation(f"{start}, while the record has {launcher.published}")
    if (start.act_lease is not None) != launcher.kind.fences:
        raise Violation(f"{start}: leases {launcher.kind.fences}")
    own = [place for at, place in enumerate(members.places) if not members.is_guest(at)]
    if any(not place.leaving for place in members.places if place not in own):
        raise Violation(f"{start}: guests that stay")
    for host, slots in _slots(launcher).items():
        if sum(place.size for place in own if place.host == host) > slots:
            raise Violation(f"{start}: {host} has {slots} slots")
    for place in members.places:
        if why := launcher.knows.get(place.host):
            raise Violation(f"{start}, though {place.host} cannot be reached: {why}")
        silence = world.now - launcher.heard.get(place.host, world.now)
        if silence > world.settings.suspect_seconds + 2 * ASK_SECONDS:
            raise Violation(f"{start}, though {place.host} is silent for {silence:.1f} s")


def _slots(launcher: Launcher) -> dict[str, int]:
    kind = launcher.kind
    named = (*kind.hosts, *kind.spares, *kind.others, *launcher.job.members.hosts)
    slots: dict[str, int] = {}
    for host in named:
        slots[host.name] = max(slots.get(host.name, 0), host.slots)
    return slots


def ends(launcher: Launcher, end: do.End) -> None:
    """The exit code is that of the documented rule, and so is what stays."""
    job = launcher.job
    if end.code == 0:
        if job.step < STEPS or job.over != 0:
            raise Violation(f"{end} at step {job.step}")
        if end.files_stay or end.resized or end.lost:
            raise Violation(f"{end} of a job that has ended well")
    elif end.files_stay and launcher.kind.shrinks:
        raise Violation(f"{end}: a job in parts continues from its checkpoints")
    elif launcher.signals:
        _ends_by_signal(launcher, end)
    elif job.over is not None and end.code == job.over:
        _ends_by_agents(launcher.world, end)
    elif launcher.machine is None or not launcher.machine.deposed:
        _ends_by_launcher(launcher.world.happened, end)


def _ends_by_signal(launcher: Launcher, end: do.End) -> None:
    first, over = int(launcher.signals[0]), launcher.job.over
    allowed = {128 + first}
    if (launcher.kind.grace or launcher.kind.shrinks) and over is not None:
        allowed.add(over)
    if end.code not in allowed or end.lost or end.resized:
        raise Violation(f"{end} after signals {launcher.signals}")


def _ends_by_agents(world: World, end: do.End) -> None:
    asked = any(each.signals for each in world.launchers)
    if end.code == 143 and not end.resized and not asked:
        raise Violation(f"{end}: nobody has asked for it")
    if end.code == 2 and not world.happened & {"state lost", "early"}:
        raise Violation(f"{end} of agents that could begin")


def _ends_by_launcher(happened: set[str], end: do.End) -> None:
    if end.files_stay or end.lost:
        # Its agents' end is not noticed, and its shims do not answer either.
        unheard = "shim dies" in happened and bool(happened & {"cut", "mpirun stopped"})
        gone = unheard or "host gone" in happened
        if not gone and not happened & {"spare gone", "arbiter away", "early"}:
            raise Violation(f"{end}, but no host was gone for long")
    elif not happened & {"early", "host gone", "mpirun killed early", "arbiter away"}:
        raise Violation(f"{end} for no reason that there was")


def at_the_end(world: World) -> None:
    """Nothing of the job is left, but for the files that stay."""
    stays = any(each.ended is not None and each.ended.files_stay for each in world.launchers)
    # Whoever would have removed them is dead, so the next job does.
    stays = stays or "shim dies" in world.happened
    for shim in world.live_shims():
        if not world.hosts[shim.host].cut:
            raise Violation(f"rank {shim.rank}'s shim lives on {shim.host} after the end")
    for host in world.hosts.values():
        kept = [number for number, files in host.files.items() if not files.kept]
        if host.alive and not host.cut and kept and not stays:
            raise Violation(f"{host.name} has files of the job after its end")


def waits(world: World) -> str:
    """Returns who is waited for, in words."""
    launcher = world.launcher
    machine = launcher.machine
    phase = "no machine" if machine is None else machine.phase.name
    hosts = [
        f"{h.name}{' dead' if not h.alive else ''}{' cut' if h.cut else ''}"
        for h in world.hosts.values()
    ]
    shims = [
        f"rank {s.rank} on {s.host} (generation {s.generation}{', orphaned' if s.orphaned else ''})"
        for s in world.live_shims()
    ]
    members = machine._members.members if machine is not None else None
    return (
        f"step {world.job.step}, launcher in {phase}, alive {launcher.alive}, {members}; hosts "
        f"{', '.join(hosts)}; shims {', '.join(shims) or 'none'}"
    )
