"""Shim, spare's shim and spare together, without a job: their reports, and their deaths."""

import contextlib
import os
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from conftest import ROOT

from hvd_ft.job.directory import JobDirectory
from hvd_ft.shim.children import SPARES
from hvd_ft.shim.client import ShimClient
from hvd_ft.shim.messages import Exited, Report, Started
from hvd_ft.shim.shim import WORKER
from hvd_ft.spares.spare_shim import fork_spare_shim
from hvd_ft.system.await_file import await_file
from hvd_ft.system.channel import Channel, Message
from hvd_ft.system.pidfd import await_one

TIMEOUT_SECONDS = 20.0
ENV = {**os.environ, "PYTHONPATH": str(ROOT)}
SCRIPT = """\
import os, signal, sys
told = sys.argv[1]
open(told + ".new", "w").write(f"{os.getpid()} {os.environ['HOROVOD_RANK']} {os.getcwd()}")
os.rename(told + ".new", told)
if sys.argv[2] == "family" and os.fork() == 0:
    os.setsid()
if sys.argv[2] in ("alone", "family"):
    signal.pause()
sys.exit(int(sys.argv[2]))
"""


def messages(channel: Channel) -> list[Message] | None:
    assert select.select([channel], [], [], TIMEOUT_SECONDS)[0], "nothing was told"
    return channel.receive()


class Job:
    """A rank's shim, and the shim of one spare, in a directory."""

    def __init__(self, arena_dir: Path, tmp_path: Path) -> None:
        self.directory = JobDirectory.create(str(arena_dir), "job")
        (tmp_path / "script.py").write_text(SCRIPT)
        self.cwd = tmp_path
        self.told = tmp_path / "told"
        self._reports: list[Report] = []
        before = os.getcwd()
        os.chdir(self.directory.path)  # as the spare manager
        try:
            argv = [sys.executable, "-m", "hvd_ft.spares.spare", str(tmp_path), "json"]
            self.spare_shim, self.manager = fork_spare_shim(argv, ENV, 1)
        finally:
            os.chdir(before)
        # After the shim, which would inherit our end of its channel.
        self.shim = ShimClient.fork()
        self.shim.watch_job(self.directory.path)

    def start(self, what: str, **env: str) -> None:
        argv = [sys.executable, "script.py", str(self.told), what]
        full = {**ENV, "HOROVOD_RANK": "2", **env}
        self.shim.start(WORKER, argv, full, str(self.cwd), spare=True)

    def report(self) -> Report:
        while not self._reports:
            ready = select.select([self.shim.channel], [], [], TIMEOUT_SECONDS)[0]
            assert ready, "the shim reported nothing"
            received = self.shim.receive()
            assert received is not None
            self._reports += received
        return self._reports.pop(0)

    def has_told(self) -> str:
        assert await_file(self.told, TIMEOUT_SECONDS)
        return self.told.read_text()

    def close(self) -> None:
        self.shim.end(TIMEOUT_SECONDS)
        self.directory.leave()
        self.manager.close()
        os.waitpid(self.spare_shim, 0)


@pytest.fixture
def job(arena_dir: Path, tmp_path: Path) -> Iterator[Job]:
    job = Job(arena_dir, tmp_path)
    told = messages(job.manager)
    assert told == [{"report": "ready"}]
    yield job
    job.close()
    assert not list(arena_dir.glob("*/*"))


def taken(job: Job, what: str) -> Started:
    job.start(what)
    started = job.report()
    assert isinstance(started, Started)
    assert started.spare
    assert messages(job.manager) == [{"report": "taken"}]
    assert not list(Path(job.directory.path).glob("ready-*"))
    return started


def test_a_spare_begins_when_it_is_told_and_its_end_is_reported(job: Job) -> None:
    started = taken(job, "7")
    assert not job.told.exists()
    job.shim.go()
    exited = job.report()
    assert isinstance(exited, Exited)
    assert exited.pid == started.pid
    assert os.waitstatus_to_exitcode(exited.status) == 7
    assert started.time_ns < exited.time_ns
    assert job.has_told() == f"{started.pid} 2 {job.cwd}"
    assert messages(job.manager) is None


def test_a_spare_that_is_killed_when_it_is_taken_is_reported(job: Job) -> None:
    started = taken(job, "7")
    os.kill(started.pid, signal.SIGKILL)
    assert job.report().status == signal.SIGKILL
    assert not job.told.exists()


def test_signals_are_passed_on(job: Job) -> None:
    taken(job, "family")
    job.shim.go()
    job.has_told()
    job.shim.kill(WORKER, signal.SIGTERM)
    assert job.report().status == signal.SIGTERM


def test_who_loses_its_spare_shim_is_dead_when_that_is_reported(job: Job) -> None:
    started = taken(job, "alone")
    job.shim.go()
    job.has_told()
    os.kill(job.spare_shim, signal.SIGKILL)
    assert job.report().status == signal.SIGKILL
    with contextlib.suppress(psutil.NoSuchProcess):  # it need not be reaped here
        assert psutil.Process(started.pid).status() == psutil.STATUS_ZOMBIE


MANAGER = """
import os, signal, sys
from hvd_ft import native
from hvd_ft.spares.spare_shim import fork_spare_shim
native.become_subreaper()
argv = [sys.executable, "-m", "hvd_ft.spares.spare", sys.argv[1], "json"]
shims = [fork_spare_shim(argv, dict(os.environ), number) for number in (1, 2)]
for _, channel in shims:
    while not channel.receive():
        pass
signal.pause()
"""


_come: dict[int, list[Report]] = {}  # and not yet asked for, by the shim's pid


def report_of(shim: ShimClient) -> Report:
    """Returns the next report."""
    reports = _come.setdefault(shim.pid, [])
    while not reports:
        ready = select.select([shim.channel], [], [], TIMEOUT_SECONDS)[0]
        assert ready, "the shim reported nothing"
        received = shim.receive()
        assert received is not None
        reports += received
    return reports.pop(0)


def test_who_was_a_spare_outlives_the_manager_and_who_waits_does_not(
    arena_dir: Path, tmp_path: Path
) -> None:
    directory = JobDirectory.create(str(arena_dir), "job")
    (tmp_path / "script.py").write_text(SCRIPT)
    told = tmp_path / "told"
    first, second = ShimClient.fork(), ShimClient.fork()  # of ranks; the manager is the first's
    second.watch_job(directory.path)
    first.start(SPARES, [sys.executable, "-c", MANAGER, str(tmp_path)], ENV, directory.path)
    manager = report_of(first)
    assert isinstance(manager, Started)
    for number in (1, 2):
        assert await_file(Path(directory.path, f"ready-{number}"), TIMEOUT_SECONDS)
    argv = [sys.executable, "script.py", str(told), "alone"]
    second.start(WORKER, argv, {**ENV, "HOROVOD_RANK": "2"}, str(tmp_path), spare=True)
    started = report_of(second)
    assert isinstance(started, Started)
    assert started.spare
    second.go()
    assert await_file(told, TIMEOUT_SECONDS)
    all_spares = psutil.Process(manager.pid).children(recursive=True)
    worker = psutil.Process(started.pid)
    waiting = [one for one in all_spares if one.pid not in (worker.pid, worker.ppid())]
    assert len(waiting) == 2  # the other spare and its shim
    os.kill(manager.pid, signal.SIGKILL)
    assert isinstance(report_of(first), Exited)
    assert all(await_one([one], TIMEOUT_SECONDS) for one in waiting)
    # Nor does it end with the next manager, of which no spare was taken, …
    first.start(SPARES, ["true"], ENV, "/")
    assert isinstance(report_of(first), Started)
    assert isinstance(report_of(first), Exited)
    # … nor with the first rank's own worker, which leaves nothing else.
    first.start(WORKER, ["true"], ENV, "/")
    assert isinstance(report_of(first), Started)
    assert isinstance(report_of(first), Exited)
    first.start("hook", ["true"], ENV, "/")  # what the worker has left is dead before
    assert isinstance(report_of(first), Started)
    assert worker.is_running()
    second.kill(WORKER, signal.SIGTERM)
    ended = report_of(second)
    assert isinstance(ended, Exited)
    assert ended.status == signal.SIGTERM
    assert first.end(TIMEOUT_SECONDS)
    assert second.end(TIMEOUT_SECONDS)
    directory.leave()


def test_who_loses_its_shim_is_ended_with_all_it_has_started(job: Job) -> None:
    started = taken(job, "family")
    job.shim.go()
    job.has_told()
    os.kill(job.shim.pid, signal.SIGKILL)
    assert messages(job.manager) is None  # the shim has gone, after it has killed the rest
    with pytest.raises(ProcessLookupError):
        os.kill(started.pid, 0)


def test_a_spare_whose_libraries_have_read_something_else_is_not_taken(job: Job) -> None:
    job.start("3", OMP_NUM_THREADS="17")
    started = job.report()
    assert isinstance(started, Started)
    assert not started.spare
    assert os.waitstatus_to_exitcode(job.report().status) == 3
    taken(job, "4")  # it still waits
