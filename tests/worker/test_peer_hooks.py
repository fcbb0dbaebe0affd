"""Restart hooks are called with what is known, once, and cannot disturb training."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fake_worker import FakeArena, incarnation

from hvd_ft import native
from hvd_ft.native.types import Divergence, Event, EventType
from hvd_ft.system.wait_status import describe
from hvd_ft.worker import peer_hooks
from hvd_ft.worker.peer_hooks import Peer, PeerEvents, Restart

SECOND = 10**9
KILLED = 9  # a wait status
KILLED_TEXT = describe(KILLED)


@pytest.fixture(autouse=True)
def _own_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_hooks, "_failure_hooks", [])
    monkeypatch.setattr(peer_hooks, "_recovery_hooks", [])
    monkeypatch.setattr(peer_hooks, "_divergence_hooks", [])
    monkeypatch.setattr(peer_hooks, "_watcher", None)


def event(time: float, kind: str, rank: int, number: int, detail: int = 0) -> Event:
    return Event(int(time * SECOND), EventType[kind], rank, number, detail)


DIVERGENCE = Divergence("w", 30, (2,), 1, 20)


def run(events: list[Event], number: int = 0) -> list[tuple[str, Peer | Divergence]]:
    names = {
        id(peer_hooks._failure_hooks): "failure",
        id(peer_hooks._recovery_hooks): "recovered",
        id(peer_hooks._divergence_hooks): "diverged",
    }
    calls = PeerEvents(0, number, {3: DIVERGENCE}.get).calls(events)
    return [(names[id(functions)], peer) for functions, peer in calls]


def test_a_peer_that_dies_twice_before_it_is_back() -> None:
    assert run(
        [
            event(0, "ATTACHED", 0, 0),
            event(1, "JOINED", 1, 0),
            event(2, "FAILED", 1, 0, KILLED),
            event(3, "ATTACHED", 1, 1),
            event(4, "FAILED", 1, 1, 1 << 8),
            event(7, "JOINED", 1, 2, detail=12),
            event(8, "JOINED", 1, 2),
        ]
    ) == [
        ("failure", Peer(1, 0, KILLED_TEXT, 0.0, 0)),
        ("failure", Peer(1, 1, "exit code 1", 0.0, 0)),
        ("recovered", Peer(1, 2, "exit code 1", 5.0, 12)),
    ]


def test_what_is_older_than_this_process_calls_nobody() -> None:
    calls = run(
        [
            event(0, "ATTACHED", 0, 0),
            event(1, "FAILED", 1, 0, KILLED),
            event(1, "FAILED", 2, 0, KILLED),
            event(2, "JOINED", 1, 1),
            event(3, "FAILED", 0, 0, KILLED),
            event(4, "ATTACHED", 0, 1),
            event(5, "JOINED", 2, 1, detail=3),
        ],
        number=1,
    )
    assert calls == [("recovered", Peer(2, 1, KILLED_TEXT, 4.0, 3))]


def test_a_divergence_is_told_to_every_rank_that_was_there() -> None:
    found = event(2, "DIVERGED", 0, 0, 3)
    assert run([event(0, "ATTACHED", 0, 0), found]) == [("diverged", DIVERGENCE)]
    overwritten = event(2, "DIVERGED", 0, 0, 2)
    assert run([event(0, "ATTACHED", 0, 0), overwritten]) == []
    again = [event(3, "FAILED", 0, 0, KILLED), event(4, "ATTACHED", 0, 1)]
    assert run([event(0, "ATTACHED", 0, 0), found, *again], number=1) == []


def test_on_restart_is_called_at_once_in_a_restarted_process() -> None:
    arena = FakeArena(events=[event(0, "FAILED", 0, 0, KILLED)])
    seen: list[Restart] = []
    with incarnation(arena, 0):
        peer_hooks.on_restart(seen.append)
    assert seen == []
    with incarnation(arena, 1):
        peer_hooks.on_restart(seen.append)
    [restart] = seen
    assert (restart.rank, restart.incarnation, restart.reason) == (0, 1, KILLED_TEXT)
    assert restart.seconds > 0


def test_a_failing_hook_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    @peer_hooks.on_restart
    def broken(restart: Restart) -> None:
        raise ValueError(restart.reason)

    assert capsys.readouterr().err == "", "no agent, no call"
    with incarnation(FakeArena(events=[event(0, "FAILED", 0, 0, KILLED)]), 1):
        peer_hooks.on_restart(broken)
    err = capsys.readouterr().err
    assert err == f"hvdft: the hook broken failed: ValueError: {KILLED_TEXT}\n"


class WatchedWorker:
    """Its events come one by one, as the test lets them."""

    rank, incarnation = 0, 0

    def __init__(self, happened: Iterator[list[Event]]) -> None:
        self._all: list[Event] = []
        self._happened = happened

    def events(self, start: int) -> list[Event]:
        return self._all[start:]

    def divergence(self, number: int) -> Divergence | None:
        return DIVERGENCE

    def wait_event(self, seen: int, timeout_ms: int) -> bool:
        assert seen == len(self._all), "no event is read twice"
        more = next(self._happened, None)
        if more is None:
            raise SystemExit  # ends the thread
        self._all += more
        return True


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_watcher_calls_hooks_and_survives_them(monkeypatch: pytest.MonkeyPatch) -> None:
    happened = iter(
        [
            [event(0, "ATTACHED", 0, 0)],
            [event(1, "FAILED", 1, 0, KILLED)],
            [event(2, "JOINED", 1, 1, 5), event(3, "FAILED", 2, 0, KILLED)],
            [event(4, "DIVERGED", 0, 0, 0)],
        ]
    )
    worker: Any = WatchedWorker(happened)
    monkeypatch.setattr(native, "worker", lambda: worker)
    seen: list[tuple[str, int, threading.Thread]] = []

    def note(name: str) -> Callable[[Peer], None]:
        return lambda peer: seen.append((name, peer.rank, threading.current_thread()))

    peer_hooks.on_peer_failure(lambda peer: 1 / 0)
    peer_hooks.on_peer_failure(note("failure"))
    peer_hooks.on_peer_recovered(note("recovered"))
    diverged: list[Divergence] = []
    peer_hooks.on_divergence(diverged.append)
    peer_hooks.start()
    peer_hooks.start()
    assert peer_hooks._watcher is not None
    peer_hooks._watcher.join(10)
    assert [call[:2] for call in seen] == [("failure", 1), ("recovered", 1), ("failure", 2)]
    assert diverged == [DIVERGENCE]
    assert {call[2] for call in seen} == {peer_hooks._watcher}
