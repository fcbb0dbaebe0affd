"""A model of a launcher and two to four hosts, explored exhaustively.

It drives the real rules (membership_rule.py, act_lease.py, membership.py); what is modelled is the
world around them: messages that are delayed or dropped, hosts that are cut off, healed or killed, a
launcher that takes any host for lost at any time or is followed by another one, time that advances.
Shims stop what they have as late as the margin allows, which is the worst case.

Time is relative: a state is stored as if its time were 0, so states that differ only in when they
happen are one. What is too old to matter is dropped.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from hvd_ft.members.act_lease import ActLease
from hvd_ft.members.hosts import Host
from hvd_ft.members.membership import Membership
from hvd_ft.members.membership_rule import Limits, MembershipRule, Replaced

LEASE, MARGIN = 2, 2
OLD = LEASE + MARGIN + 2  # messages do not live longer
SETTLE_TICKS = 40
NEVER = float("-inf")


class Violation(AssertionError):
    """Something that must not happen."""


@dataclass(frozen=True)
class Shim:
    """A shim and its worker.

    Attributes:
        rank: its. epoch: in which its host took the place. lease: its.
        runs: whether the worker acts. left: whether its rank has left, so that it never does.
    """

    rank: int
    epoch: int
    lease: ActLease
    runs: bool = False
    left: bool = False


@dataclass(frozen=True)
class Node:
    """A host: whether it lives, whether its link is cut, and the shims on it."""

    alive: bool = True
    cut: bool = False
    shims: tuple[Shim, ...] = ()


@dataclass(frozen=True, order=True)
class Message:
    """On its way. kind: `answer` to the launcher, `lease` or `out` to a shim. number: its time."""

    kind: str
    node: int
    rank: int
    epoch: int
    number: float


@dataclass(frozen=True)
class World:
    """A state; its time is 0.

    Attributes:
        rule: of the launcher. nodes: host `n<i>` is the i-th. wire: messages on their way.
        faults: how many more there may be. launchers: how many more may take over.
        left: the ranks that have left the job.
    """

    rule: MembershipRule
    nodes: tuple[Node, ...]
    wire: frozenset[Message]
    faults: int
    launchers: int
    left: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Bounds:
    """What is explored.

    Attributes:
        places: ranks of each place. spares: slots of each spare host. faults: how many links are
            cut and hosts killed. wire: messages on their way at once. epochs: how many changes.
        launchers: how many take over. least: ranks with which the job continues in place.
        found: whether the user gives hosts up and finds them, at any time.
    """

    places: tuple[int, ...]
    spares: tuple[int, ...]
    faults: int
    wire: int
    epochs: int
    launchers: int = 0
    least: int | None = None
    found: bool = False


def begin(bounds: Bounds) -> World:
    """Returns the first state: all hosts have begun, and nobody has a lease yet."""
    slots = (*bounds.places, *bounds.spares)
    named = [Host(f"n{number}", count) for number, count in enumerate(slots)]
    members = Membership.first(named[: len(bounds.places)], sum(bounds.places))
    limits, least = Limits(LEASE, MARGIN), bounds.least
    rule = MembershipRule.begin(limits, members, named, resumed_at=None, least=least)
    world = World(
        rule, (Node(),) * len(slots), frozenset(), bounds.faults, launchers=bounds.launchers
    )
    return started(world)


def node_of(host: str) -> int:
    return int(host[1:])


def with_node(world: World, number: int, node: Node) -> World:
    nodes = list(world.nodes)
    nodes[number] = node
    return replace(world, nodes=tuple(nodes))


def with_shim(world: World, node: int, shim: Shim) -> World:
    old = world.nodes[node]
    shims = tuple(shim if other.rank == shim.rank else other for other in old.shims)
    return with_node(world, node, replace(old, shims=shims))


def shim_of(world: World, node: int, rank: int, epoch: int) -> Shim | None:
    for shim in world.nodes[node].shims:
        if (shim.rank, shim.epoch) == (rank, epoch):
            return shim
    return None


# ---------------------------------------------------------------- what happens


def started(world: World) -> World:
    """A generation begins: hosts that can be reached have agents and shims for their places."""
    members = world.rule.members
    for at, place in enumerate(members.places):
        number = node_of(place.host)
        node = world.nodes[number]
        if not node.alive or node.cut or shim_of(world, number, place.first, place.since):
            continue
        shims = tuple(
            Shim(rank, place.since, ActLease(LEASE), left=rank in world.left)
            for rank in place.ranks
        )
        # What the host has of an older epoch is ended first; of a guest's only its ranks'.
        kept = [shim for shim in node.shims if shim.rank not in place.ranks]
        others = tuple(kept) if members.is_guest(at) else ()
        world = with_node(world, number, replace(node, shims=(*others, *shims)))
    return world


def answer(world: World, node: int, shim: Shim) -> World:
    """A shim answers a question of the launcher."""
    asked = replace(shim, lease=shim.lease.answered(0, 0))
    message = Message("answer", node, shim.rank, shim.epoch, 0)
    return replace(with_shim(world, node, asked), wire=world.wire | {message})


def deliver(world: World, message: Message) -> World:
    """A message arrives."""
    wire = world.wire - {message}
    world = replace(world, wire=wire)
    if message.kind == "answer":
        rule, granted = world.rule.answered(message.rank, message.epoch, 0)
        if not granted:
            rule, _ = rule.came_back(message.rank, message.epoch)
        reply = replace(message, kind="lease" if granted else "out")
        return replace(world, rule=rule, wire=wire | {reply})
    shim = shim_of(world, message.node, message.rank, message.epoch)
    if shim is None:
        return world
    if message.kind == "out":
        node = world.nodes[message.node]
        shims = tuple(other for other in node.shims if other is not shim)
        return with_node(world, message.node, replace(node, shims=shims))
    lease = shim.lease.granted(int(message.number))
    runs = lease.holds(0) and not shim.left
    return with_shim(world, message.node, replace(shim, lease=lease, runs=runs))


def look(world: World, lost: set[int]) -> World:
    """The launcher takes hosts for lost."""
    reachable = {
        host: world.nodes[node_of(host)].alive and not world.nodes[node_of(host)].cut
        for host in world.rule.spares
    }
    acting = runners(world)
    rule, actions = world.rule.look(lost, reachable, 0)
    for action in actions:
        if isinstance(action, Replaced):
            place = world.rule.members.places[action.place]
            if set(place.ranks) & set(acting):
                raise Violation(f"{action} while {acting} act")
    return started(replace(world, rule=rule)) if rule is not world.rule else world


def leave(world: World, node: int, shim: Shim) -> World:
    """A worker comes to the step boundary at which its rank leaves."""
    gone = replace(shim, runs=False, left=True)
    return replace(with_shim(world, node, gone), left=world.left | {shim.rank})


def find(world: World, host: Host) -> World:
    """A host is named, or its cooldown ends."""
    rule = world.rule
    taken = rule.fitting([host])
    if taken is None:
        return world
    places = rule.members.places
    left = {at for at, place in enumerate(places) if world.left.issuperset(place.ranks)}
    rule = rule.refill(taken, left)
    if rule is world.rule:
        return world
    back = {rank for at in taken for rank in places[at].ranks}
    if back & set(runners(world)):
        raise Violation(f"{taken} while {runners(world)} act")
    return started(replace(world, rule=rule, left=world.left - back))


def give_up(world: World, host: Host) -> World:
    """A host is not named any more."""
    return replace(world, rule=world.rule.withdraw([host.name]) or world.rule)


def tick(world: World) -> World:
    """Time advances by 1; everything is shifted, so that the present stays 0."""
    heard = tuple(shifted(time, LEASE + MARGIN) for time in world.rule.heard)
    wire = frozenset(
        replace(message, number=message.number - 1)
        for message in world.wire
        if message.number > -OLD
    )
    nodes = tuple(
        replace(node, shims=tuple(map(older, node.shims))) if node.shims else node
        for node in world.nodes
    )
    return replace(world, rule=replace(world.rule, heard=heard), nodes=nodes, wire=wire)


def older(shim: Shim) -> Shim:
    """Returns a shim 1 later; it stops its worker as late as it may."""
    lease = shim.lease
    until = shifted(lease.until, MARGIN)
    answers = tuple((number - 1, time - 1) for number, time in lease.answers)
    runs = shim.runs and until + MARGIN > 0
    return replace(shim, lease=replace(lease, until=until, answers=answers), runs=runs)


def without_dead_answers(world: World) -> World:
    """Forgets answers of which no message is on its way: nothing can be granted for them."""
    living = {(m.node, m.rank, m.epoch, m.number) for m in world.wire}
    for number, node in enumerate(world.nodes):
        for shim in node.shims:
            answers = tuple(
                dict.fromkeys(
                    known
                    for known in shim.lease.answers
                    if (number, shim.rank, shim.epoch, known[0]) in living
                )
            )
            if answers != shim.lease.answers:
                lease = replace(shim.lease, answers=answers)
                world = with_shim(world, number, replace(shim, lease=lease))
    return world


def shifted(time: float, oldest: int) -> float:
    """Returns a time 1 later, or never if it is too long ago to matter."""
    return NEVER if time - 1 < -oldest else time - 1


def runners(world: World) -> dict[int, list[tuple[str, int]]]:
    """Returns where each rank's workers act, and in which epoch."""
    found: dict[int, list[tuple[str, int]]] = {}
    for number, node in enumerate(world.nodes):
        for shim in node.shims:
            if shim.runs:
                found.setdefault(shim.rank, []).append((f"n{number}", shim.epoch))
    return found


def round_trips(world: World) -> Iterator[tuple[str, World]]:
    """Yields what becomes of each shim's answer if nothing is late: both ways, or only one."""
    for number, node in enumerate(world.nodes):
        for shim in node.shims:
            if node.cut:
                continue
            name = f"n{number} rank {shim.rank}"
            answered = answer(world, number, shim)
            half = deliver(answered, min(answered.wire))
            yield f"{name} is heard", replace(half, wire=frozenset())
            yield f"{name} is heard and hears", deliver(half, min(half.wire))


def changes_in_place(world: World, bounds: Bounds) -> Iterator[tuple[str, World]]:
    """Yields how ranks leave, and how hosts are given up and found."""
    for number, node in enumerate(world.nodes):
        for shim in node.shims:
            place = world.rule.members.places[world.rule.members.place_of(shim.rank)]
            if shim.runs and place.leaving and place.since == shim.epoch:
                yield f"n{number} rank {shim.rank} leaves", leave(world, number, shim)
    if bounds.found and world.rule.members.epoch < bounds.epochs:
        for host in world.rule.named:
            yield f"{host.name} is found", find(world, host)
            yield f"{host.name} is given up", give_up(world, host)


def steps(world: World, bounds: Bounds) -> Iterator[tuple[str, World]]:
    """Yields everything that can happen next."""
    yield "tick", tick(world)
    if not bounds.wire:
        yield from round_trips(world)
    sent = {(m.node, m.rank, m.epoch) for m in world.wire if m.number == 0}
    for number, node in enumerate(world.nodes):
        for shim in node.shims:
            waits = len(world.wire) >= bounds.wire
            if not node.cut and not waits and (number, shim.rank, shim.epoch) not in sent:
                yield f"n{number} rank {shim.rank} answers", answer(world, number, shim)
        if world.faults and node.alive:
            fewer = replace(world, faults=world.faults - 1)
            yield f"kill n{number}", with_node(fewer, number, Node(alive=False))
            if not node.cut:
                yield f"cut n{number}", with_node(fewer, number, replace(node, cut=True))
        if node.cut:
            healed = with_node(world, number, replace(node, cut=False))
            yield f"heal n{number}", started(healed)
    yield from changes_in_place(world, bounds)
    for message in world.wire:
        yield f"{message} arrives", deliver(world, message)
        yield f"{message} is dropped", replace(world, wire=world.wire - {message})
    if world.rule.members.epoch < bounds.epochs:
        for place in range(len(world.rule.members.places)):
            yield f"place {place} is lost", look(world, {place})
    if world.launchers:
        rule = MembershipRule.begin(
            world.rule.limits,
            world.rule.members,
            world.rule.named,
            resumed_at=0,
            least=bounds.least,
        )
        yield "another launcher", replace(world, rule=rule, launchers=world.launchers - 1)


# ---------------------------------------------------------------- what must hold


def check_safe(world: World) -> None:
    """No rank acts twice, and no host has two places but for guests, whose ranks leave."""
    for rank, where in runners(world).items():
        if len(where) > 1:
            raise Violation(f"rank {rank} acts on {where}")
    members = world.rule.members
    own = [place for at, place in enumerate(members.places) if not members.is_guest(at)]
    if not all(place.leaving or place in own for place in members.places):
        raise Violation(f"guests that stay: {members}")
    hosts = [place.host for place in own]
    if len(set(hosts)) < len(hosts) or set(hosts) & set(world.rule.spares):
        raise Violation(f"hosts {hosts}, spares {world.rule.spares}")


def check_goes_on(world: World) -> None:
    """If nothing more fails, and there are hosts enough, all ranks act in the present epoch."""
    nodes = tuple(replace(node, cut=False) for node in world.nodes)
    world = started(replace(world, nodes=nodes))
    silent = [0] * len(world.rule.members.places)
    for _ in range(SETTLE_TICKS):
        for message in sorted(world.wire):
            world = deliver(world, message)
        for number, node in enumerate(world.nodes):
            for shim in node.shims:
                world = answer(world, number, shim)
        while world.wire:
            world = deliver(world, min(world.wire))
        check_safe(world)
        if _goes_on(world):
            return
        for number, place in enumerate(world.rule.members.places):
            heard = any(world.rule.heard[rank] == 0 for rank in place.ranks)
            silent[number] = 0 if heard else silent[number] + 1
        lost = {number for number, ticks in enumerate(silent) if ticks > LEASE + MARGIN}
        world = tick(look(world, lost) if lost else started(world))
    living = sum(node.alive for node in world.nodes)  # all have slots for any place
    if living >= len(world.rule.members.places) or _could_do_without(world):
        raise Violation(f"the job does not go on: {world.rule.members}, {world.nodes}")


def _could_do_without(world: World) -> bool:
    """Returns whether ranks enough are on living hosts, rank 0 among them."""
    places = world.rule.members.places
    alive = [place for place in places if world.nodes[node_of(place.host)].alive]
    stay = sum(place.size for place in alive if not place.leaving)
    return world.rule.least is not None and stay >= world.rule.least and alive[0] is places[0]


def _goes_on(world: World) -> bool:
    acting = runners(world)
    for place in world.rule.members.places:
        for rank in place.ranks:
            acts = acting.get(rank) == [(place.host, place.since)]
            if not acts and not (place.leaving and rank in world.left):
                return False
    return True


def explore(bounds: Bounds) -> dict[str, Any]:
    """Visits every state that can be reached.

    Raises:
        Violation: with the steps that lead to it.

    Returns: The number of states, of steps, and of states in which a rank has another host.
    """
    first = begin(bounds)
    came: dict[World, tuple[World, str] | None] = {first: None}
    todo = deque([first])
    taken = replaced = 0
    while todo:
        world = todo.popleft()
        replaced += world.rule.members.epoch > 0
        try:
            check_goes_on(world)
            for name, step in steps(world, bounds):
                taken += 1
                following = without_dead_answers(step)
                if following not in came:
                    came[following] = (world, name)
                    check_safe(following)
                    todo.append(following)
        except Violation as violation:
            raise Violation(f"{violation}, after {_path(came, world)}") from None
    return {"states": len(came), "steps": taken, "replaced": replaced}


def _path(came: dict[World, tuple[World, str] | None], world: World) -> list[str]:
    names: list[str] = []
    while (before := came[world]) is not None:
        world, name = before
        names.insert(0, name)
    return names
