"""A shim without a lease stops what it has, with real processes and a life-line to this test."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from heard_lines import HeardLines

from hvd_ft.job.directory import JobDirectory
from hvd_ft.job.lifeline_messages import ShimStatus
from hvd_ft.shim.client import ShimClient
from hvd_ft.shim.messages import Attend, Started, Takeover
from hvd_ft.shim.reattach import reattach
from hvd_ft.shim.shim import WORKER
from hvd_ft.system.event_loop import EventLoop
from hvd_ft.system.freeze import let_continue, stop_descendants

TIMEOUT_SECONDS = 20.0
LEASE = 0.5
# A worker with a child and an orphan in a session of its own.
FAMILY = "sh -c 'sleep 600; true' & setsid sleep 601 & exec sleep 602"


class Launcher:
    """A launcher that grants leases or not, and admits shims or not."""

    def __init__(self, loop: EventLoop) -> None:
        self.loop = loop
        self.lines = HeardLines(loop, self)
        self.granting = self.admitting = True
        self.seen: list[ShimStatus] = []
        self.number = self.answers = 0

    def admits(self, shim: ShimStatus) -> bool:
        self.seen.append(shim)
        return self.admitting

    def grants(self, shim: ShimStatus) -> bool:
        self.answers += 1
        return self.granting

    def serve(self, until: Callable[[], object]) -> None:
        """Asks often, until something is the case."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not until():
            assert time.monotonic() < deadline
            self.number += 1
            self.lines.ask(self.number)
            self.loop.run_once(0.05)


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    with EventLoop() as loop:
        launcher = Launcher(loop)
        yield launcher
        launcher.lines.close()


@pytest.fixture
def agent(launcher: Launcher, arena_dir: Path) -> Iterator["Agent"]:
    agent = Agent(launcher, arena_dir)
    yield agent
    agent.close()


class Agent:
    """An agent in a process of its own, whose shim has a worker with a family."""

    def __init__(self, launcher: Launcher, arena_dir: Path, before: str = "") -> None:
        self.launcher = launcher
        self.arena_dir = arena_dir
        code = f"""if True:
            import os, sys, time
            from hvd_ft.job.directory import JobDirectory
            from hvd_ft.shim.client import ShimClient
            from hvd_ft.shim.messages import Attend
            {before}
            shim = ShimClient.fork()
            shim.attend(Attend(3, "n0/1", 0, {launcher.lines.address!r}, 20, 60, 7, {LEASE}))
            directory = JobDirectory.create({str(arena_dir)!r}, "job")
            shim.watch_job(directory.path)
            shim.keep(60)
            shim.start("worker", ["sh", "-c", {FAMILY!r}], dict(os.environ), "/")
            print(shim.pid, flush=True)
            while shim.receive() is not None:
                shim.beat(None)
                time.sleep(0.05)
            """
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self.process.stdout
        self.shim = psutil.Process(int(self.process.stdout.readline()))

    @property
    def directory(self) -> Path:
        return self.arena_dir / f"hvdft-{os.geteuid()}" / "job"

    def family(self) -> list[psutil.Process]:
        """What the shim has below it: four processes, once they have begun."""
        return self.shim.children(recursive=True)

    def stand_still(self, *, with_agent: bool = True) -> bool:
        """Returns whether everything is stopped."""
        family = self.family()
        if with_agent:
            family.append(psutil.Process(self.process.pid))
        return all(process.status() == psutil.STATUS_STOPPED for process in family)

    def move(self) -> bool:
        """Returns whether the worker's family is there, and nothing is stopped."""
        family = [*self.family(), psutil.Process(self.process.pid)]
        return len(family) == 5 and all(p.status() != psutil.STATUS_STOPPED for p in family)

    def close(self) -> None:
        with contextlib.suppress(psutil.Error):
            left = [self.shim, *self.family()]
            for process in left:
                process.kill()
            psutil.wait_procs(left, TIMEOUT_SECONDS)
        self.process.kill()
        self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()


def test_no_worker_begins_before_the_first_lease(launcher: Launcher, agent: Agent) -> None:
    launcher.granting = False
    launcher.serve(lambda: launcher.answers > 20)
    assert agent.family() == []
    assert launcher.seen == [ShimStatus(3, "n0/1", 0, False, None, 7)]
    launcher.granting = True
    launcher.serve(agent.move)


def test_without_a_lease_all_stand_still_and_with_one_they_go_on(
    launcher: Launcher, agent: Agent
) -> None:
    launcher.serve(agent.move)
    before = {process.pid for process in agent.family()}
    launcher.granting = False  # answers arrive, but are not confirmed
    launcher.serve(agent.stand_still)
    assert psutil.pid_exists(agent.shim.pid)
    launcher.granting = True
    launcher.serve(agent.move)
    assert {process.pid for process in agent.family()} == before


def test_what_stood_still_before_does_not_go_on(launcher: Launcher, agent: Agent) -> None:
    launcher.serve(agent.move)
    worker = agent.family()[0]
    worker.suspend()
    launcher.granting = False
    launcher.serve(agent.stand_still)
    launcher.granting = True
    launcher.serve(lambda: psutil.Process(agent.process.pid).status() != psutil.STATUS_STOPPED)
    assert worker.status() == psutil.STATUS_STOPPED


def test_a_shim_whose_host_has_lost_its_place_ends_everything(
    launcher: Launcher, agent: Agent
) -> None:
    launcher.serve(agent.move)
    launcher.granting = launcher.admitting = False
    launcher.serve(agent.stand_still)
    family = agent.family()
    launcher.lines.forget(["n0/1"])  # it comes back over a new line
    launcher.serve(lambda: not agent.directory.exists())
    assert psutil.wait_procs(family, TIMEOUT_SECONDS)[1] == []
    assert agent.process.wait(TIMEOUT_SECONDS) == -signal.SIGKILL


def test_the_agent_of_a_new_launcher_finds_all_standing_still_until_there_is_a_lease(
    launcher: Launcher, agent: Agent
) -> None:
    launcher.serve(agent.move)
    other = Launcher(launcher.loop)
    other.granting = False
    script = f"""if True:
        import sys, time
        from hvd_ft.shim.reattach import Takeover, reattach
        reattach({str(agent.directory)!r}, 3, Takeover(1, 20, {other.lines.address!r}, {LEASE}))
        print("taken", flush=True)
        time.sleep(600)
        """
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as newer:
        process = psutil.Process(newer.pid)
        other.serve(lambda: process.status() == psutil.STATUS_STOPPED)
        assert agent.stand_still(with_agent=False)
        assert newer.stdout and not select.select([newer.stdout], [], [], 0)[0]
        other.granting = True
        other.serve(lambda: process.status() != psutil.STATUS_STOPPED)
        assert newer.stdout.readline() == "taken\n"
        newer.kill()
    other.lines.close()


def test_what_an_older_agent_wanted_is_not_begun_for_a_newer_one(
    launcher: Launcher, agent: Agent
) -> None:
    """Without a lease its order was held; the newer agent orders what it wants."""
    launcher.granting = False
    launcher.serve(lambda: launcher.answers > 5)
    other = Launcher(launcher.loop)
    script = f"""if True:
        import time
        from hvd_ft.shim.reattach import Takeover, reattach
        found = reattach({str(agent.directory)!r}, 3,
            Takeover(1, 20, {other.lines.address!r}, {LEASE}))
        print(found.found.worker, flush=True)
        time.sleep(600)
        """
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as newer:
        assert newer.stdout
        other.serve(lambda: select.select([newer.stdout], [], [], 0)[0])
        told = newer.stdout.readline()
        after = other.answers + 3  # these renew the lease
        other.serve(lambda: other.answers > after)
        family = agent.family()
        newer.kill()
    other.lines.close()
    assert (told, family) == ("None\n", [])


def test_a_shim_that_needs_no_lease_starts_at_once(arena_dir: Path) -> None:
    directory = JobDirectory.create(str(arena_dir), "job")
    shim = ShimClient.fork()
    shim.attend(Attend(3, "n0/1", 0, None, 20, 60))
    shim.start(WORKER, ["sleep", "600"], dict(os.environ), "/")
    (started,) = shim.receive() or ()
    assert isinstance(started, Started)
    assert reattach(directory.path, 3, Takeover(1, 20, None)) is None
    assert shim.end(10)
    directory.leave()


def test_processes_that_are_being_started_are_stopped_too() -> None:
    """A family that grows all the time."""
    script = "for n in $(seq 300); do sleep 600 & done; wait"
    with subprocess.Popen(["sh", "-c", script]) as grower:
        try:
            stopped = stop_descendants()
            left = psutil.Process().children(recursive=True)
            assert {p.status() for p in left} <= {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE}
            assert grower.pid in {process.pid for process in stopped}
            again = stop_descendants()
            assert again == []
        finally:
            grower.kill()
            let_continue(stopped)
            for process in psutil.Process().children(recursive=True):
                process.kill()


def test_what_memory_lacked_where_an_agent_died_is_told(
    launcher: Launcher, arena_dir: Path
) -> None:
    told = "OomWatch.verdict = lambda self: f'looked at {self._pid}'"
    agent = Agent(launcher, arena_dir, f"from hvd_ft.system.oom import OomWatch; {told}")
    try:
        launcher.serve(agent.move)
        assert [shim.lack for shim in launcher.seen] == [""]
        agent.process.kill()
        lack = f"looked at {agent.process.pid}"
        launcher.serve(lambda: launcher.seen[-1].orphaned)
        assert launcher.seen[-1].lack == lack
    finally:
        agent.close()
