"""Explores a simulated job: one fault, or two, at every moment at which something has changed."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import world_checks as checks
from job_world import STEP_SECONDS, JobKind, Violation, World
from world_faults import Fault, faults_of

from hvd_ft.members.hosts import Host

LIMIT_SECONDS = 75.0  # from the last fault to the end of everything
MOST_EVENTS = 200_000
MOST_VIOLATIONS = 20  # of which the shortest one is shown
MOST_BETWEEN = 250  # events between two of three faults

_THREE = (Host("n0", 1), Host("n1", 1), Host("n2", 1))
KINDS = {
    kind.name: kind
    for kind in (
        JobKind("one host", (), 2),
        JobKind("hosts", (Host("n0", 2), Host("n1", 1)), 3),
        JobKind("spares", _THREE[:2], 2, spares=_THREE[2:], launcher="front"),
        JobKind("led", _THREE[:2], 2, spares=(Host("n2", 1), Host("n3", 1)), led=True),
        JobKind("led without spares", _THREE[:2], 2, led=True),
        JobKind("parts", _THREE, 3, fewest=2, others=(Host("n3", 1),)),
        JobKind("in place", _THREE, 3, least=2, fewest=2, others=(Host("n3", 1),)),
        JobKind("checkpoint", _THREE[:2], 2, grace=True, from_checkpoint=True),
    )
}


@dataclass(frozen=True)
class Struck:
    """A fault and its moment: the number of events before it."""

    fault: Fault
    at: int

    def __str__(self) -> str:
        return f"{self.fault} after event {self.at}"


def moment(world: World) -> tuple[Any, ...]:
    """Returns what distinguishes a moment from others: what may decide what a fault does."""
    launcher = world.launcher
    machine = launcher.machine
    generation = world.generation
    shims = [shim for shim in world.live_shims() if shim.job is world.job]
    return (
        world.job.number,
        world.parts and world.parts.machine.phase,
        len(world.launchers),
        launcher.alive,
        machine and machine.phase,
        machine and machine.generation,
        machine and str(machine._members.members),
        launcher.ended is not None,
        generation and (generation.number, generation.alive, generation.met, generation.complete),
        generation and sum(agent.alive for agent in generation.agents.values()),
        len(shims),
        sum(shim.orphaned for shim in shims),
        all(shim.is_open for shim in shims),
        sum(shim.line is not None for shim in shims),
        tuple((host.alive, host.cut) for host in world.hosts.values()),
        world.job.step > 1,
        world.job.over,
        len(world.job.left),
    )


def is_over(world: World) -> bool:
    """Returns whether nothing more comes."""
    if world.parts is not None and not world.parts.over:
        return False
    if not all(each.over or not each.alive for each in world.launchers) or world.live_shims():
        return False
    agents = (agent for each in world.generations for agent in each.agents.values())
    return not any(agent.alive and world.hosts[agent.host].alive for agent in agents)


class _Progress:
    """Sees to it that a world comes to its end."""

    def __init__(self, world: World) -> None:
        self._step, self._since = world.job.step, world.now

    def go_on(self, world: World) -> None:
        """Has the next event happen.

        Raises:
            Violation: of what must hold.
        """
        if not world.step():
            raise Violation(f"nothing happens any more: {checks.waits(world)}")
        if world.events % 8 == 0:
            checks.after_event(world)
        if world.job.step != self._step:
            self._step, self._since = world.job.step, world.now
        if world.now > max(self._since, world.last_fault) + LIMIT_SECONDS:
            raise Violation(f"no end and no progress: {checks.waits(world)}")
        if world.events > MOST_EVENTS:
            raise Violation(f"no end: {checks.waits(world)}")


def moments(world: World) -> Iterator[int]:
    """Has a world go on to the end of everything; yields whenever something has changed.

    Raises:
        Violation: of what must hold.
    """
    before, progress = moment(world), _Progress(world)
    while not is_over(world):
        progress.go_on(world)
        present = moment(world)
        if present != before:
            before = present
            yield world.events
    _settle(world)


def finish(world: World) -> None:
    """Has a world go on to the end of everything.

    Raises:
        Violation: of what must hold.
    """
    progress = _Progress(world)
    while not is_over(world):
        progress.go_on(world)
    _settle(world)


def _settle(world: World) -> None:
    settle = world.now + STEP_SECONDS
    while world.now < settle and world.step():
        pass
    checks.at_the_end(world)


@dataclass
class Found:
    """What was explored. runs: how many. violations: the faults that lead to each."""

    runs: int = 0
    violations: list[tuple[tuple[Struck, ...], str]] = field(default_factory=list)


class Explorer:
    """Explores one kind of job.

    Args:
        kind: of the job.
        most: violations after which it stops.
        part: number of a slice of the pairs of faults, from 0, and how many slices there are.
    """

    def __init__(self, kind: JobKind, most: int = 1, part: tuple[int, int] = (0, 1)) -> None:
        self.kind = kind
        self.faults = faults_of(kind)
        self.found = Found()
        self._most = most
        self._part = part
        self._seen: set[Any] = set()

    def explore(self, depth: int) -> Found:
        """Tries up to so many faults, each at every moment."""
        self._from(World(self.kind), (), depth)
        return self.found

    def _from(self, world: World, struck: tuple[Struck, ...], depth: int) -> None:
        self.found.runs += 1
        try:
            for _ in moments(world) if depth else ():
                self._fork(world, struck, depth)
            if not depth:
                finish(world)
        except Violation as violation:
            self.found.violations.append((struck, str(violation)))

    def _fork(self, world: World, struck: tuple[Struck, ...], depth: int) -> None:
        state = (tuple(each.fault for each in struck), moment(world))
        if state in self._seen:
            return
        self._seen.add(state)
        names = tuple(str(each.fault) for each in struck)
        faults = [fault for fault in self.faults if self._takes((*names, str(fault)), depth)]
        if not faults:
            return
        kept = world.freeze()
        for fault in faults:
            if len(self.found.violations) >= self._most:
                return
            faults_so_far = (*struck, Struck(fault, world.events))
            copy = World.thaw(kept)
            try:
                fault.strike(copy)
            except Violation as violation:
                self.found.violations.append((faults_so_far, str(violation)))
                continue
            self._from(copy, faults_so_far, depth - 1)

    def _takes(self, names: tuple[str, ...], depth: int) -> bool:
        """Returns whether faults belong to this slice, or begin some that do."""
        if depth > 1:
            return any(self._takes((*names, str(fault)), depth - 1) for fault in self.faults)
        number, slices = self._part
        return zlib.crc32(" ".join(names).encode()) % slices == number


def check(kind: JobKind, depth: int, part: tuple[int, int] = (0, 1)) -> Found:
    """Explores a kind of job.

    Raises:
        Violation: with the shortest way to one.
    """
    found = Explorer(kind, MOST_VIOLATIONS, part).explore(depth)
    if found.violations:
        struck, text = min(found.violations, key=lambda each: (len(each[0]), each[0][-1].at))
        lines = "\n".join(replay(kind, struck))
        faults = " and ".join(map(str, struck))
        raise Violation(f"{kind.name}: {text}\n  by {faults}\n{lines}")
    return found


def draw(kind: JobKind, random: Random) -> tuple[Struck, ...]:
    """Draws three faults, and has them strike; returns them.

    Raises:
        Violation: with what happened.
    """
    world, struck = World(kind), ()
    faults = faults_of(kind)
    try:
        for _ in range(3):
            for _ in range(random.randrange(MOST_BETWEEN)):
                if not is_over(world):
                    world.step()
            struck = (*struck, Struck(random.choice(faults), world.events))
            struck[-1].fault.strike(world)
        finish(world)
    except Violation as violation:
        lines = "\n".join(replay(kind, struck))
        raise Violation(f"{kind.name}: {violation}\n{lines}") from None
    return struck


def replay(kind: JobKind, struck: tuple[Struck, ...]) -> list[str]:
    """Returns what happens, in lines, when these faults strike."""
    world = World(kind, traced=True)
    try:
        for each in struck:
            while world.events < each.at:
                world.step()
            each.fault.strike(world)
        finish(world)
    except Violation as violation:
        world.note(f"*** {violation}")
    return world.trace
