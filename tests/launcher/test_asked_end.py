"""How signals end a job: what the shims are told, and how often."""

import signal
from types import SimpleNamespace
from typing import Any

import pytest
from hvd_ft.launcher.asked_end import INTERRUPT_SECONDS, AskedEnd

from hvd_ft.job.settings import Settings
from hvd_ft.system.event_loop import EventLoop


class Job:
    """Two ranks whose agents have begun, on a clock of the test's own."""

    def __init__(self) -> None:
        self.now = 100.0
        self.told: list[dict[str, Any]] = []
        self.interrupted: set[int] = set()
        self.shims = [object(), object()]
        self.kills = 0
        self.signals: Any = SimpleNamespace(received=[])
        self.loop = EventLoop(lambda: self.now)
        lines: Any = self
        mpirun: Any = SimpleNamespace(kill=self.kill, end_by=lambda seconds: None)
        self.end = AskedEnd(self.loop, self.signals, lines, 2, Settings(), mpirun=mpirun)

    def tell(self, message: dict[str, Any]) -> None:
        self.told.append(message)

    def kill(self) -> None:
        self.kills += 1


@pytest.fixture
def job() -> Job:
    return Job()


def test_workers_that_have_handled_it_are_stopped_once(job: Job) -> None:
    job.signals.received = [signal.SIGINT]
    job.end.heed()
    job.interrupted.add(0)
    job.end.heed()
    assert job.told == [{"interrupt": True}]
    job.interrupted.add(1)
    for _ in range(3):  # whatever happens next
        job.end.heed()
    assert job.told == [{"interrupt": True}, {"stop": signal.SIGINT}]
    job.now += INTERRUPT_SECONDS
    job.loop.run_once(0)
    assert len(job.told) == 2
    job.loop.close()


def test_workers_that_do_not_handle_it_are_stopped_in_time(job: Job) -> None:
    job.signals.received = [signal.SIGINT]
    job.end.heed()
    job.now += INTERRUPT_SECONDS
    job.loop.run_once(0)
    assert job.told == [{"interrupt": True}, {"stop": signal.SIGINT}]
    assert job.kills == 0
    job.signals.received = [signal.SIGINT, signal.SIGINT]
    job.end.heed()
    assert job.kills == 1
    job.loop.close()
