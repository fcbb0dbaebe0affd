"""What an agent publishes and orders, in which order, as its worker and its shim come and go."""

import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from hvd_ft.agent import rank_record
from hvd_ft.agent.job_context import JobContext
from hvd_ft.agent.supervisor_loop import SupervisorLoop, Training
from hvd_ft.job.launch import Launch
from hvd_ft.job.placement import Nodes
from hvd_ft.job.settings import Settings
from hvd_ft.native.types import Event, EventType, State, Status
from hvd_ft.shim import messages
from hvd_ft.shim.messages import FoundWorker, Reattached

RANK = 1
NEVER = float("inf")


@dataclass
class World:
    """All that the loop calls; it notes what is done, and then says what happens next."""

    done: list[Any] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    state: State = State.RUNNING
    incarnation: int = 0
    over: bool = False
    stopped: tuple[str, int, int] | None = None
    reports: list[messages.Report] = field(default_factory=list)
    sockets: list[socket.socket] = field(default_factory=list)
    script: dict[Any, Callable[[], None]] = field(default_factory=dict)

    def pair(self) -> tuple[socket.socket, socket.socket]:
        """Returns two connected sockets, which stay open."""
        pair = socket.socketpair()
        self.sockets += pair
        return pair

    def note(self, *what: Any) -> None:
        """Notes what is done, and continues with what follows it."""
        self.done.append(what)
        if follows := self.script.get(what[:2]):
            follows()

    def tell(self, *reports: messages.Report) -> None:
        """Has the shim send reports."""
        self.reports += reports
        self.wake.send(b"!")

    def happen(self, kind: EventType, incarnation: int, detail: int = 0) -> None:
        """Adds an event of the rank."""
        self.events.append(Event(len(self.events), kind, RANK, incarnation, detail))

    def end(self) -> None:
        """All ranks are done, or the job is stopped."""
        self.over = True
        self.news.send(b"!")

    def loop(self, generation: int = 0, found: FoundWorker | None = None) -> SupervisorLoop:
        """Returns the loop of an agent in this world."""
        ours, self.wake = self.pair()
        (signals, _), (stacks, _) = self.pair(), self.pair()
        shim = SimpleNamespace(
            channel=ours,
            pid=7,
            found=Reattached(7, found, []) if found else None,
            receive=lambda: ours.recv(1) and [self.reports.pop(0)],
            start=lambda name, argv, env, cwd, spare: self.note(
                "start", int(env["HOROVOD_FT_INCARNATION"])
            ),
            go=lambda: self.note("go"),
            kill=lambda name, number: self.note("kill", number),
            signal=lambda name, number: self.note("signal", number),
            note=lambda note: self.note("send", note["type"]),
            flight_part=lambda number, part: self.note("part", number),
        )
        agent = SimpleNamespace(
            started=lambda incarnation, pid: self.note("started", incarnation, pid),
            failed=lambda status: self.note("failed", status),
            done=lambda status: self.note("done", status),
            fatal=lambda code, message: self.note("fatal", code),
            fatal_text=lambda: self.stopped,
            worker_ended_orderly=lambda: False,
            last_words=lambda: "",
        )
        observer = SimpleNamespace(
            size=2,
            events=lambda start=0: self.events[start:],
            status=lambda rank: Status(self.state, self.incarnation, 0, 0, 0, 0),
            watch=lambda rank: SimpleNamespace(step=5, executed=9, contributed=9),
        )
        care = SimpleNamespace(begin=lambda: None, look_at=NEVER)
        commands = SimpleNamespace(
            running=False,
            look_at=NEVER,
            kill_late=lambda: None,
            run=lambda hook, facts: self.note("hook", hook, facts["HOROVOD_FT_STEP"]),
        )
        launch = Launch(generation=generation)
        parts: dict[str, Any] = {
            "context": JobContext(RANK, Settings(), Nodes((0, 2)), "job", "/dir", launch),
            "training": Training(["true"], {}),
            "agent": agent,
            "observer": observer,
            "shim": shim,
            "care": care,
            "commands": commands,
            "journal": None,
            "launchers": {},
            "signals": signals,
            "stacks": stacks,
            "flight_records": False,
        }
        return SupervisorLoop(**parts)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """With news by a socket instead of a thread."""
    world = World()
    ours, world.news = world.pair()

    class News:
        """As JobNews."""

        def __init__(self, _agent: object) -> None:
            self.fileno, self.take = ours.fileno, lambda: ours.recv(1)

        def __enter__(self) -> "News":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        @property
        def over(self) -> bool:
            return world.over

    monkeypatch.setattr(rank_record, "JobNews", News)
    yield world
    for end in world.sockets:
        end.close()


def started(pid: int) -> messages.Started:
    return messages.Started("worker", pid, 1, spare=False)


def exited(pid: int, status: int) -> messages.Exited:
    return messages.Exited("worker", pid, status, 2)


def test_a_death_is_published_before_the_next_worker_starts(world: World) -> None:
    """Two times, and the job ends when the third worker has."""

    def die(incarnation: int) -> None:
        world.happen(EventType.ATTACHED, incarnation)
        world.tell(exited(10 + incarnation, signal.SIGKILL))

    for number in range(3):
        world.script["start", number] = lambda number=number: world.tell(started(10 + number))
    for number in range(2):
        world.script["started", number] = lambda number=number: die(number)
    world.script["started", 2] = lambda: world.tell(exited(12, 0))
    world.script["done", 0] = world.end
    assert world.loop().run() == 0
    deaths = [("failed", signal.SIGKILL), ("hook", "on-failure", "0")]
    assert world.done == [
        *[("start", 0), ("started", 0, 10), *deaths],
        *[("start", 1), ("started", 1, 11), *deaths],
        *[("start", 2), ("started", 2, 12), ("done", 0)],
    ]


def test_an_agent_goes_on_where_the_older_one_was_killed(world: World) -> None:
    """The shim has a worker that has ended; its attachment and failures before count once."""
    world.happen(EventType.ATTACHED, 0)
    world.happen(EventType.FAILED, 0)
    world.happen(EventType.ATTACHED, 1)
    world.incarnation = 1
    found = FoundWorker(1)
    found.pid, found.end = 11, (signal.SIGKILL, 3)
    world.script["start", 2] = lambda: world.tell(started(12))
    world.script["started", 2] = lambda: world.tell(exited(12, 0))
    world.script["done", 0] = world.end
    assert world.loop(generation=1, found=found).run() == 0
    assert [what[:2] for what in world.done][:4] == [
        ("started", 1),  # the older agent had not published it
        ("failed", signal.SIGKILL),
        ("hook", "on-failure"),
        ("start", 2),
    ]


def test_a_job_that_another_rank_has_stopped_ends_with_its_code(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    """And only the rank that has stopped it says why, once."""
    world.script["start", 0] = lambda: world.tell(started(10))
    world.script["kill", signal.SIGTERM] = lambda: world.tell(exited(10, signal.SIGTERM))

    def stop() -> None:
        world.stopped = ("rank 0 died too often", 9, 0)
        world.end()

    world.script["started", 0] = stop
    assert world.loop().run() == 9
    assert "died too often" not in capfd.readouterr().err
