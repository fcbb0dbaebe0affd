"""Looks at all hosts of a job at once: facts, clocks, and a short test of each and its links."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from hvd_ft.doctor.between_rules import Clock, Link, Seen, Speed
from hvd_ft.errors import HvdFtError
from hvd_ft.members.hosts import Host
from hvd_ft.tools.check.host_probe import CLOCK, FACTS, RECEIVE, SEND, SPEED, Answer, Request
from hvd_ft.tools.check.host_session import HostSession

_START_SECONDS = 30.0  # for ssh, and for Python to start
_ANSWER_SECONDS = 20.0  # more than any part of the short test takes
_CLOCK_TURNS = 5
_TOKEN_BYTES = 16

Show = Callable[[str], None]


@dataclass
class _Known:
    """What is known so far; a host that fell silent is only in `silent`."""

    sessions: dict[str, HostSession]
    silent: dict[str, str] = field(default_factory=dict)
    first: dict[str, Answer] = field(default_factory=dict)
    clocks: dict[str, Clock] = field(default_factory=dict)
    speeds: dict[str, Speed] = field(default_factory=dict)


def look_at(hosts: Sequence[Host], environment: Mapping[str, str], show: Show) -> Seen:
    """Looks at hosts; every wait has a limit, after which a host counts as silent.

    Args:
        hosts: each once, with the ranks that are to run there.
        environment: the whole one of mpirun.
        show: is called with what is being done.
    """
    names = [host.name for host in hosts]
    with contextlib.ExitStack() as stack:
        known = _Known({})
        for name in names:
            known.sessions[name] = HostSession(name, environment)
            stack.callback(known.sessions[name].close)
        # An end of a link waits for the other one: each needs a thread.
        pool = stack.enter_context(ThreadPoolExecutor(2 * len(hosts)))
        show(f"looking at {len(hosts)} hosts")
        ranks = {host.name: host.slots for host in hosts}
        _each(pool, known, lambda name: _first(known, name, Request(FACTS, ranks[name], names)))
        show("measuring CPUs and memory")
        _each(pool, known, lambda name: _speed(known, name))
        show("measuring links")
        links = _links(pool, known)
    return Seen(
        silent=known.silent,
        # In the user's order, not in that of the answers.
        facts={
            name: told.facts for name in names if (told := known.first.get(name)) and told.facts
        },
        clocks=known.clocks,
        speeds=known.speeds,
        links=links,
    )


def _each(pool: ThreadPoolExecutor, known: _Known, act: Callable[[str], None]) -> None:
    """Does something with every host that has not fallen silent."""

    def guarded(name: str) -> None:
        try:
            act(name)
        except HvdFtError as error:
            known.silent[name] = str(error)

    list(pool.map(guarded, [name for name in known.sessions if name not in known.silent]))


def _first(known: _Known, name: str, request: Request) -> None:
    session = known.sessions[name]
    known.first[name] = session.ask(request, _START_SECONDS)
    turns = []
    for _ in range(_CLOCK_TURNS):
        begin = time.time()
        told = session.ask(Request(CLOCK), _ANSWER_SECONDS)
        end = time.time()
        turns.append(Clock(told.time - (begin + end) / 2, (end - begin) / 2))
    known.clocks[name] = min(turns, key=lambda turn: turn.within)


def _speed(known: _Known, name: str) -> None:
    told = known.sessions[name].ask(Request(SPEED), _ANSWER_SECONDS)
    if told.speed:
        known.speeds[name] = told.speed


def _links(pool: ThreadPoolExecutor, known: _Known) -> list[Link]:
    names = [name for name in known.sessions if name not in known.silent]
    found: list[Link] = []
    for pairs in rounds(names):
        both = pool.map(lambda pair: _both_ways(pool, known, *pair), pairs)
        found += [link for links in both for link in links]
    return found


def rounds(names: Sequence[str]) -> list[list[tuple[str, str]]]:
    """Returns the pairs of neighbours in a ring in rounds in which each host has one partner.

    Args:
        names: of the hosts, in the order of the ring.
    """
    if len(names) < 2:
        return []
    edges = [(name, names[(at + 1) % len(names)]) for at, name in enumerate(names)]
    if len(names) == 2:
        return [edges[:1]]
    last = [edges.pop()] if len(names) % 2 else []
    return [each for each in (edges[::2], edges[1::2], last) if each]


def _both_ways(pool: ThreadPoolExecutor, known: _Known, one: str, other: str) -> Iterable[Link]:
    return [_link(pool, known, one, other), _link(pool, known, other, one)]


def _link(pool: ThreadPoolExecutor, known: _Known, sender: str, receiver: str) -> Link:
    token = secrets.token_hex(_TOKEN_BYTES)
    there = known.first[receiver]
    take = Request(RECEIVE, token=token)
    give = Request(SEND, address=there.address or receiver, port=there.port, token=token)
    taken = pool.submit(known.sessions[receiver].ask, take, _ANSWER_SECONDS)
    error = ""
    try:
        known.sessions[sender].ask(give, _ANSWER_SECONDS)
    except HvdFtError as failed:
        error = str(failed)
    try:
        rate = taken.result().rate
    except HvdFtError as failed:
        return Link(sender, receiver, error=error or str(failed))
    if not error and not rate:
        error = "what it sends does not arrive"
    return Link(sender, receiver, rate, error)
