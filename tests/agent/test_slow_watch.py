"""What the agents of two hosts say about slow ranks, on a clock of the test's own."""

from collections.abc import Mapping
from typing import Any

import pytest

from hvd_ft.agent import slow_watch
from hvd_ft.agent.job_context import JobContext
from hvd_ft.agent.slow_causes import Reading, Worker
from hvd_ft.agent.slow_watch import SlowWatch
from hvd_ft.job.placement import Nodes
from hvd_ft.job.settings import Settings
from hvd_ft.native.types import Left, State, Status, Times
from hvd_ft.system.event_loop import EventLoop

MS = 1_000_000
HOSTS = Nodes((0, 2, 4))


class World:
    """Ranks 0 and 1 on one host, 2 and 3 on another one: the observer of their agents.

    Attributes:
        compute_ms: of each rank's steps.
        said: lines, by the rank whose agent says them.
        notes: of the report.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.size, self.steps = 1000.0, 4, 0
        self.compute_ms = dict.fromkeys(range(4), 100)
        self.spent = dict.fromkeys(range(4), Times())
        self.gone: set[int] = set()
        self.throttled = 0.0
        self.said: list[tuple[int, str]] = []
        self.notes: list[tuple[int, int, str, Mapping[str, Any]]] = []
        monkeypatch.setattr(slow_watch.time, "monotonic", lambda: self.now)
        self.watches = [self.watch(rank) for rank in range(4)]

    def watch(self, rank: int) -> SlowWatch:
        """The watch of a rank's agent."""
        observer: Any = self
        return SlowWatch(
            JobContext(rank, Settings(), HOSTS, "j", "/dev/shm/none"),
            observer,
            say=lambda text: self.said.append((rank, text)),
            note=lambda *note: self.notes.append(note),
            read=self.read,
        )

    def read(self, pids: Mapping[int, int]) -> Reading:
        """A host that throttles its workers."""
        workers = {rank: Worker(pid, throttled=self.throttled) for rank, pid in pids.items()}
        return Reading(self.now, workers)

    def status(self, rank: int) -> Status:
        return Status(State.RUNNING, 1, 100 + rank, self.steps, 0, 0, 0)

    def left(self, rank: int) -> Left:
        return Left.FOR_GOOD if rank in self.gone else Left.NO

    def times(self, rank: int) -> Times:
        return self.spent[rank]

    def run(self, seconds: int) -> None:
        """Ten steps a second, after which whoever wants to looks."""
        for _ in range(seconds):
            self.now += 1
            self.throttled += 0.5
            self.steps += 10
            longest = max(self.compute_ms.values())
            for rank, ms in self.compute_ms.items():
                of = self.spent[rank]
                wait = of.wait_ns + 10 * (longest - ms) * MS
                self.spent[rank] = Times(of.rounds + 10, of.compute_ns + 10 * ms * MS, wait, 0)
            for watch in self.watches:
                if watch.look_at <= self.now:
                    watch.look()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_the_first_agent_of_the_host_says_it_once_with_the_cause(world: World) -> None:
    world.compute_ms[3] = 140
    world.run(60)
    ((by, text),) = world.said
    assert by == 2
    assert text.startswith("rank 3 on ") and "the others wait 29 of 100 ms a step for it" in text
    assert text.endswith(
        ": its control group has throttled its CPU for 50 % of the time (cpu.stat): it wants more "
        "than cpu.max allows"
    )
    ((rank, incarnation, told, facts),) = world.notes
    assert (rank, incarnation, told) == (3, 1, text)
    assert facts["ranks"] == [3] and not facts["ended"] and len(facts["causes"]) == 1
    assert facts["host"] in text and facts["late"] == 1.0 and facts["step_seconds"] == 0.1

    world.compute_ms[3] = 100
    world.run(60)
    assert [by for by, _ in world.said] == [2, 2]
    assert "rank 3 on" in world.said[1][1] and "is no longer slow" in world.said[1][1]
    assert world.notes[1][3]["ended"] and world.notes[1][3]["causes"] == []


def test_a_host_is_named_by_its_own_agent(world: World) -> None:
    world.compute_ms |= {0: 150, 1: 150}
    world.run(60)
    ((by, text),) = world.said
    assert by == 0 and "(ranks 0, 1) is slow" in text


def test_an_even_job_is_quiet(world: World) -> None:
    world.run(600)
    assert world.said == [] and world.notes == []


def test_a_rank_that_has_left_is_not_looked_at(world: World) -> None:
    world.compute_ms[3] = 140
    world.gone = {3}
    world.run(60)
    assert world.said == []


def test_only_the_first_agent_of_a_host_looks(world: World) -> None:
    waiting = [watch.look_at < float("inf") for watch in world.watches]
    assert waiting == [True, False, True, False]


def test_it_looks_again_and_again_by_itself(world: World) -> None:
    watch, looks = world.watches[0], []
    watch.look = lambda: (looks.append(1), setattr(watch, "look_at", 0.0))  # type: ignore
    watch.look_at = 0.0
    with EventLoop() as loop:
        watch.follow(loop)
        for _ in range(3):
            loop.run_once()
    assert len(looks) >= 3
