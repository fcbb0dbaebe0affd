"""A launcher whose shared directory does not answer continues with all else."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import HANG_SECONDS

from hvd_ft.errors import HvdFtError
from hvd_ft.launcher import job_leader
from hvd_ft.launcher.job_leader import JobLeader
from hvd_ft.launcher.shared_record import SharedRecord
from hvd_ft.system.event_loop import EventLoop


class Directory:
    """A shared directory, whose disk answers or does not."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.record = SharedRecord(str(path), "job1")
        self.answers, self.asked = threading.Event(), threading.Event()
        self.answers.set()
        self._sync = os.fsync
        monkeypatch.setattr(os, "fsync", self._fsync)

    def _fsync(self, descriptor: int) -> None:
        if not self.answers.is_set():
            self.asked.set()
            assert self.answers.wait(HANG_SECONDS)
        self._sync(descriptor)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Directory]:
    monkeypatch.setattr(job_leader, "RENEW_SECONDS", 0.01)
    monkeypatch.setattr(job_leader, "LEADERSHIP_SECONDS", 1.0)
    monkeypatch.setattr(job_leader, "END_SECONDS", 0.1)
    monkeypatch.setattr(job_leader, "_LOOK_SECONDS", 0.01)
    shared = Directory(tmp_path, monkeypatch)
    yield shared
    shared.answers.set()


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    with EventLoop() as loop:
        yield loop


class User:
    """One who may have the job stopped."""

    def __init__(self) -> None:
        self.stops = False

    def stopped(self) -> bool:
        return self.stops


def leader(loop: EventLoop, directory: Directory, user: User, limit: float) -> JobLeader:
    return JobLeader(
        loop,
        directory.record,
        "job1",
        resume=False,
        limit_seconds=limit,
        stopped=user.stopped,
    )


def stall(loop: EventLoop, directory: Directory) -> None:
    directory.asked.clear()
    directory.answers.clear()
    loop.run(until=directory.asked.is_set)


def publish(loop: EventLoop, lead: JobLeader, generation: int, members: str) -> bool:
    """Publishes, and waits for the outcome."""
    outcomes: list[bool] = []
    lead.on_published = outcomes.append
    lead.publish(generation, members)
    loop.run(until=lambda: bool(outcomes))
    return outcomes[0]


def go_on(loop: EventLoop) -> None:
    """Goes through the loop some times, for several renewals."""
    rounds = [0]

    def tick() -> None:
        rounds[0] += 1
        timer.set(loop.now() + 0.005)

    timer = loop.timer(tick)
    timer.set(loop.now())
    loop.run(until=lambda: rounds[0] >= 20)
    timer.clear()


def test_a_directory_that_does_not_answer_stops_nothing_but_new_agents(
    loop: EventLoop, directory: Directory, capsys: pytest.CaptureFixture[str]
) -> None:
    lead = leader(loop, directory, User(), HANG_SECONDS)
    assert lead.holds() and publish(loop, lead, 0, "first")
    stall(loop, directory)
    loop.run(until=lambda: not lead.holds())
    go_on(loop)  # it renews leases, and hears the user
    assert not lead.holds() and not lead.deposed
    directory.answers.set()
    loop.run(until=lead.holds)
    assert publish(loop, lead, 1, "second")
    found = directory.record.read()
    assert found and (found.generation, found.members) == (1, "second")
    assert "cannot be renewed (it does not answer): until it can" in capsys.readouterr().err
    lead.end(resumable=False)
    assert directory.record.read() is None


def test_each_time_that_the_directory_does_not_answer_is_said_once(
    loop: EventLoop, directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(job_leader, "say", said.append)
    lead = leader(loop, directory, User(), HANG_SECONDS)
    for times in (1, 2):
        stall(loop, directory)
        loop.run(until=lambda: not lead.holds())
        go_on(loop)
        assert len(said) == times
        directory.answers.set()
        loop.run(until=lead.holds)
    lead.end(resumable=False)


def test_what_is_published_waits_for_the_directory_and_the_end_does_not(
    loop: EventLoop, directory: Directory
) -> None:
    lead = leader(loop, directory, User(), HANG_SECONDS)
    outcomes: list[bool] = []
    lead.on_published = outcomes.append
    stall(loop, directory)
    lead.publish(1, "overtaken")
    lead.publish(2, "members")
    go_on(loop)
    assert outcomes == []
    directory.answers.set()
    loop.run(until=lambda: bool(outcomes))
    found = directory.record.read()
    assert outcomes == [True] and found and (found.generation, found.members) == (2, "members")
    stall(loop, directory)
    lead.publish(3, "never")
    lead.end(resumable=True)
    assert outcomes == [True]


def test_a_job_does_not_begin_where_the_directory_does_not_answer(
    loop: EventLoop, directory: Directory
) -> None:
    user = User()
    directory.answers.clear()
    with pytest.raises(HvdFtError, match=r"cannot be used \(it has not answered for 0\.05 s\)"):
        leader(loop, directory, user, 0.05)
    user.stops = True
    with pytest.raises(HvdFtError, match="job job1 was not begun, as you have stopped it"):
        leader(loop, directory, user, HANG_SECONDS)


def test_another_leader_is_found_at_once(
    loop: EventLoop, directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    lead = leader(loop, directory, User(), HANG_SECONDS)
    found = directory.record.read()
    assert found
    loop.run(until=lambda: not lead._is_busy)
    lead._renew_at.clear()
    found = directory.record.read()
    assert found
    assert directory.record.swap(found, type(found)(**{**vars(found), "term": found.term + 1}))
    assert not publish(loop, lead, 1, "members")
    assert lead.deposed
