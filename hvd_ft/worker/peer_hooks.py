"""Hooks: the user's functions that are called when a rank dies, is back, or has diverged."""

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from hvd_ft import native
from hvd_ft.native.types import Divergence, Event, EventType
from hvd_ft.system.say import say
from hvd_ft.system.wait_status import describe

_WAIT_MS = 60_000


@dataclass(frozen=True)
class Restart:
    """A worker's own restart.

    Attributes:
        rank: this rank.
        incarnation: this process's incarnation, from 1.
        reason: how the previous process ended, such as `signal 9, SIGKILL`.
        seconds: the time since then.
    """

    rank: int
    incarnation: int
    reason: str
    seconds: float


@dataclass(frozen=True)
class Peer:
    """A rank that died or is back.

    Attributes:
        rank: the peer's.
        incarnation: that of the process that died, or of the process that is back.
        reason: how the last process ended, such as `signal 9, SIGKILL`.
        seconds: how long the rank has been away; 0 if it has just died.
        ops_replayed: number of collectives that it got from the log; 0 if it has just died.
    """

    rank: int
    incarnation: int
    reason: str
    seconds: float
    ops_replayed: int


RestartHook = TypeVar("RestartHook", bound=Callable[[Restart], object])
PeerHook = TypeVar("PeerHook", bound=Callable[[Peer], object])
DivergenceHook = TypeVar("DivergenceHook", bound=Callable[[Divergence], object])

_failure_hooks: list[Callable[[Peer], object]] = []
_recovery_hooks: list[Callable[[Peer], object]] = []
_divergence_hooks: list[Callable[[Divergence], object]] = []
_watcher: threading.Thread | None = None


def on_restart(function: RestartHook) -> RestartHook:
    """Calls `function(Restart)` at once if this process is a restarted one, otherwise never.

    Usable as a decorator. An exception is reported in one line and goes no further.
    """
    worker = native.worker()
    if worker is not None and worker.incarnation > 0:
        _call(function, _own_restart(worker))
    return function


def on_peer_failure(function: PeerHook) -> PeerHook:
    """Registers `function(Peer)`, to be called in a separate thread whenever another rank dies.

    Usable as a decorator. An exception is reported in one line and goes no further.
    """
    _failure_hooks.append(function)
    return function


def on_peer_recovered(function: PeerHook) -> PeerHook:
    """Registers `function(Peer)`, to be called in a separate thread whenever another rank is back.

    Usable as a decorator. An exception is reported in one line and goes no further.
    """
    _recovery_hooks.append(function)
    return function


def on_divergence(function: DivergenceHook) -> DivergenceHook:
    """Registers `function(Divergence)`, for variables that are no longer equal on all ranks.

    It is called on every rank of the job, in a separate thread. Usable as a decorator. An exception
    is reported in one line and goes no further.
    """
    _divergence_hooks.append(function)
    return function


def start() -> None:
    """Starts the thread that calls the hooks, once a process, if there is an agent."""
    global _watcher
    worker = native.worker()
    if worker is None or _watcher is not None:
        return
    _watcher = threading.Thread(target=_watch, args=(worker,), name="hvd_ft hooks", daemon=True)
    _watcher.start()


def _watch(worker: native.Worker) -> None:
    peers = PeerEvents(worker.rank, worker.incarnation, worker.divergence)
    seen = 0
    while True:
        events = worker.events(seen)
        seen += len(events)
        for hooks, fact in peers.calls(events):
            for hook in hooks:
                _call(hook, fact)
        worker.wait_event(seen, _WAIT_MS)


class PeerEvents:
    """Turns the node's events into calls of hooks.

    Events from before this incarnation attached are remembered, but call no hook: they happened to
    an earlier process.

    Args:
        rank: this process's.
        incarnation: this process's.
        divergence: returns a divergence by its number, None if it is no longer known.
    """

    def __init__(
        self, rank: int, incarnation: int, divergence: Callable[[int], Divergence | None]
    ) -> None:
        self._me = (rank, incarnation)
        self._divergence = divergence
        self._attached = False
        self._away: dict[int, Event] = {}  # by rank: its first failure since it was last there
        self._reasons: dict[int, str] = {}

    def calls(self, events: Iterable[Event]) -> Iterable[tuple[list[Any], Peer | Divergence]]:
        """Yields the hooks to call, with their arguments, for the next events."""
        for event in events:
            if event.type is EventType.DIVERGED:
                found = self._divergence(event.detail) if self._attached else None
                if found is not None:
                    yield _divergence_hooks, found
            elif event.rank == self._me[0]:
                attached = (event.rank, event.incarnation) == self._me
                self._attached |= attached and event.type is EventType.ATTACHED
            elif event.type is EventType.FAILED:
                self._away.setdefault(event.rank, event)
                self._reasons[event.rank] = describe(event.detail)
                if self._attached:
                    yield _failure_hooks, self._peer(event, 0.0, 0)
            elif event.type is EventType.JOINED and event.rank in self._away:
                seconds = (event.time_ns - self._away.pop(event.rank).time_ns) / 1e9
                if self._attached:
                    yield _recovery_hooks, self._peer(event, seconds, event.detail)

    def _peer(self, event: Event, seconds: float, ops_replayed: int) -> Peer:
        reason = self._reasons[event.rank]
        return Peer(event.rank, event.incarnation, reason, seconds, ops_replayed)


def _own_restart(worker: native.Worker) -> Restart:
    failures = [
        event
        for event in worker.events(0)
        if event.rank == worker.rank and event.type is EventType.FAILED
    ]
    last = failures[-1]  # published before the next worker is started
    seconds = (time.monotonic_ns() - last.time_ns) / 1e9
    return Restart(worker.rank, worker.incarnation, describe(last.detail), seconds)


def _call(hook: Callable[[Any], object], fact: Restart | Peer | Divergence) -> None:
    try:
        hook(fact)
    except Exception as error:
        name = getattr(hook, "__name__", repr(hook))
        reason = f"{type(error).__name__}: {error}"
        say(f"the hook {name} failed: {reason}")
