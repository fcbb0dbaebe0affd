"""How agents of new generations take a shim over: real processes, and a launcher in this one."""

import contextlib
import mmap
import os
import signal
import socket
import stat
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
import pytest
from forked import exit_code, forked
from heard_lines import HeardLines

from hvd_ft.errors import HvdFtError
from hvd_ft.job.directory import JobDirectory
from hvd_ft.job.lifeline_messages import AgentLost, ShimStatus
from hvd_ft.shim.client import ShimClient
from hvd_ft.shim.messages import Attend, BeatHeard, Started, Takeover, to_wire
from hvd_ft.shim.reattach import NewAgent, ReattachSocket, reattach
from hvd_ft.system.event_loop import EventLoop
from hvd_ft.system.handoff import send_order
from hvd_ft.system.pidfd import has_ended, pidfd_of_this_process

KEEP_SECONDS = 60.0
pytestmark = pytest.mark.timeout(200)


def begin(launcher: str, directory: str) -> ShimClient:
    """A shim of this process that keeps its processes for the next agent, after generation 0."""
    process = ShimClient.fork()
    process.attend(Attend(3, "n0/1", 0, launcher, 20, 60))
    process.watch_job(directory)
    process.keep(KEEP_SECONDS)
    process.start("worker", ["sleep", "600"], dict(os.environ), "/")
    assert process.channel.receive()
    return process


@dataclass
class Job:
    """A job's directory, and a launcher that serves its life-lines while a test waits for it."""

    path: str
    launcher: HeardLines
    loop: EventLoop


@dataclass
class FirstAgent:
    """A process that has begun as the first agent, and its shim; both are known by pidfds."""

    job: Job
    shim: int
    own_pidfd: int
    shim_pidfd: int

    def shim_tells(self, what: Callable[[ShimStatus], bool]) -> bool:
        """Waits until the shim tells the launcher something; False: it has died.

        Its line alone says neither: it may break, and come again.
        """
        told = lambda: any(what(shim) for shim in self.job.launcher.shims)  # noqa: E731
        self.job.loop.run(until=lambda: told() or has_ended(self.shim_pidfd))
        return not has_ended(self.shim_pidfd)


@pytest.fixture
def job(arena_dir: Path) -> Iterator[Job]:
    directory = JobDirectory.create(str(arena_dir), "job")
    with EventLoop() as loop:
        launcher = HeardLines(loop)
        yield Job(directory.path, launcher, loop)
        launcher.close()  # which ends a shim that is still there
    directory.leave()


@contextlib.contextmanager
def child_that(acts: Callable[[], object]) -> Iterator[int]:
    """A forked process, which is killed in the end."""
    child = forked(acts)
    try:
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def await_rest(child: int) -> int:
    """Waits until such a process has ended, or is stopped; returns its code, or its signal."""
    ended = os.waitid(os.P_PID, child, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
    assert ended is not None
    return ended.si_status


@contextlib.contextmanager
def first_agent(job: Job, then: Callable[[ShimClient], object]) -> Iterator[FirstAgent]:
    """One that begins, and does something then, which ends or stops it."""
    ours, theirs = socket.socketpair()

    def live() -> None:
        held = begin(job.launcher.address, job.path)
        theirs.sendall(str(held.pid).encode())
        theirs.recv(1)  # a shim that has not reached the launcher yet ends with its agent
        then(held)

    with ours, contextlib.ExitStack() as stack:
        child = stack.enter_context(child_that(live))
        theirs.close()
        own = os.pidfd_open(child)
        stack.callback(os.close, own)
        job.loop.run(until=lambda: bool(job.launcher.shims) or has_ended(own))
        told = ours.recv(100)
        assert told, "the first agent has not begun"
        ours.sendall(b".")
        descriptor = os.pidfd_open(int(told))
        stack.callback(os.close, descriptor)
        await_rest(child)
        yield FirstAgent(job, int(told), own, descriptor)


def stop(_shim: ShimClient) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def orphaned_in(generation: int) -> Callable[[ShimStatus], bool]:
    return lambda shim: shim.orphaned and shim.generation == generation


@pytest.fixture
def shim(job: Job) -> Iterator[ShimClient]:
    """One that waits for the agent after this process."""
    process = begin(job.launcher.address, job.path)
    yield process
    process.end(10)


def test_nothing_of_an_older_generation_is_accepted(shim: ShimClient, job: Job) -> None:
    process, path = shim, job.path
    assert stat.S_IMODE(os.stat(f"{path}/shim-3").st_mode) == 0o600
    with pytest.raises(HvdFtError, match="the shim of rank 3 refuses an agent of"):
        reattach(path, 3, Takeover(0, 20, None))
    assert reattach(path, 2, Takeover(1, 20, None)) is None
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(f"{path}/shim-3")
        stranger.sendall(b"no order")
        stranger.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(f"{path}/shim-3")
        send_order(stranger, {"generation": 1}, [0, 1, 2, 0])  # and nothing of its lease
        stranger.settimeout(20)
        assert stranger.recv(1) == b""
    process.start("another", ["true"], {}, "/")
    reports = process.receive()
    assert reports
    assert isinstance(reports[0], Started)
    assert reports[0].name == "another"


def test_nobody_is_reattached_by_another_users_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents: list[NewAgent] = []
    with EventLoop() as loop:
        ReattachSocket(loop, str(tmp_path), 3, agents.append)
        for other in (0, 1):
            with socket.socket(socket.AF_UNIX) as stranger, pidfd_of_this_process() as own:
                stranger.connect(str(tmp_path / "shim-3"))
                send_order(stranger, to_wire(Takeover(1, 20, None, None)), [0, 1, 2, own])
                user = os.getuid()
                monkeypatch.setattr(os, "geteuid", lambda user=user, other=other: user + other)
                loop.run_once()
        assert len(agents) == 1
        agents[0].refuse()


def test_a_stopped_agent_that_is_superseded_dies(job: Job) -> None:
    """If it were continued there would be two agents on one arena."""
    with first_agent(job, stop) as first:
        found = reattach(job.path, 3, Takeover(1, 20, job.launcher.address))
        assert found is not None
        assert has_ended(first.own_pidfd), "before the new agent has heard anything"
        assert found.found.worker is not None
        assert found.found.worker.pid > 0
        assert ShimClient(first.shim, found.pidfd, found.channel, found.found).end(10)


def test_a_new_agent_that_dies_before_it_is_heard_takes_no_worker_along(job: Job) -> None:
    with first_agent(job, stop) as first:
        os.kill(first.shim, signal.SIGSTOP)
        with socket.socket(socket.AF_UNIX) as end:
            end.connect(f"{job.path}/shim-3")

            def take_over() -> None:
                with pidfd_of_this_process() as own:
                    send_order(end, to_wire(Takeover(1, 20, None, None)), [0, 1, 2, own])

            assert exit_code(forked(take_over)) == 0  # and its number is free again
        os.kill(first.shim, signal.SIGCONT)
        assert first.shim_tells(orphaned_in(1)), "the shim has died"
        found = reattach(job.path, 3, Takeover(2, 20, job.launcher.address))
        assert found is not None
        assert found.found.shim == first.shim
        assert found.found.worker is not None
        assert found.found.worker.end is None
        assert psutil.pid_exists(found.found.worker.pid)
        assert ShimClient(first.shim, found.pidfd, found.channel, found.found).end(10)


class Clock:
    """One that stands still, for this process and all that it forks."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, struct.calcsize("d"))

    def __call__(self) -> float:
        return float(struct.unpack("d", self._memory[:])[0])

    def advance(self, seconds: float) -> None:
        self._memory[:] = struct.pack("d", self() + seconds)


@pytest.mark.parametrize("older", ["dead", "stopped"])
def test_no_time_of_an_older_agent_runs_on_for_the_next_one(
    job: Job, monkeypatch: pytest.MonkeyPatch, older: str
) -> None:
    """Neither the one for an agent to come nor its limit in MPI; over two generations."""
    clock = Clock()
    monkeypatch.setattr("hvd_ft.shim.shim.EventLoop", partial(EventLoop, clock))
    dead = older == "dead"

    def leave(shim: ShimClient) -> None:
        shim.limit(KEEP_SECONDS / 2, "the limit of an older agent")
        if not dead:
            stop(shim)

    def come(generation: int) -> None:
        shim = ShimClient.reattach(
            job.path, 3, Takeover(generation, 20, job.launcher.address), seconds=60
        )
        assert shim is not None
        clock.advance(KEEP_SECONDS + 1)
        for _ in range(2):  # it looks at its clock after the first one
            shim.beat(None)
            assert shim.receive() == [BeatHeard(known=True)]
        assert shim.found is not None
        assert shim.found.worker is not None
        assert shim.found.worker.end is None
        leave(shim)

    with first_agent(job, leave) as first, contextlib.ExitStack() as later:
        for generation in (1, 2):
            if dead:
                assert first.shim_tells(orphaned_in(generation - 1))
            child = later.enter_context(child_that(partial(come, generation)))
            assert await_rest(child) == (0 if dead else signal.SIGSTOP)
        assert first.shim_tells(lambda shim: shim.generation == 2)
        last = ShimClient.reattach(job.path, 3, Takeover(3, 20, job.launcher.address), seconds=60)
        assert last is not None
        assert last.end(10)


def test_a_shim_has_nothing_for_new_agents_before_it_is_told_to_keep(job: Job) -> None:
    process = ShimClient.fork()
    process.attend(Attend(3, "n0/1", 0, None, 20, 60))
    process.watch_job(job.path)
    process.start("worker", ["true"], {}, "/")
    assert process.channel.receive()
    with pytest.raises(HvdFtError, match="the shim of rank 3 refuses an agent of"):
        reattach(job.path, 3, Takeover(1, 20, None))
    assert process.end(10)


def test_an_agent_that_dies_before_anything_is_kept_is_told(job: Job) -> None:
    """Hydra does not notice the death of one that has not begun with MPI."""

    def live() -> None:
        shim = ShimClient.fork()  # which ends when this is gone
        shim.attend(Attend(3, "n0/1", 0, job.launcher.address, 20, 60))
        signal.pause()

    with child_that(live) as child:
        job.loop.run(until=lambda: job.launcher.shims)
        os.kill(child, signal.SIGKILL)
        job.loop.run(until=lambda: job.launcher.lost_agents)
        assert job.launcher.lost_agents == [AgentLost()]
        job.loop.run(until=lambda: not job.launcher.shims)


def test_a_shim_tells_its_agent_that_it_has_reached_the_launcher(
    shim: ShimClient, job: Job
) -> None:
    job.loop.run(until=lambda: job.launcher.shims)
    found = False
    while not found:  # it has sent its status before it hears of this
        shim.beat(None)
        (heard,) = shim.receive() or ()
        assert isinstance(heard, BeatHeard)
        found = heard.known


@pytest.mark.parametrize("generation", [0, 1])
@pytest.mark.parametrize("kept", [False, True])
def test_a_launcher_that_is_lost_ends_each_shim(
    monkeypatch: pytest.MonkeyPatch, generation: int, kept: bool
) -> None:
    """The launcher was reached by a shim before, and is out of reach since: nothing answers."""
    clock = Clock()
    monkeypatch.setattr("hvd_ft.shim.shim.EventLoop", partial(EventLoop, clock))
    # The file that captures stderr is closed in a shim, and its number is another file's.
    monkeypatch.setattr("hvd_ft.shim.shim.say", lambda _text: None)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def live() -> None:
            shim = ShimClient.fork()
            launcher = f"127.0.0.1:{listener.getsockname()[1]}:key"
            shim.attend(Attend(3, "n0/1", generation, launcher, 20, 60, known=True))
            if kept:
                shim.keep(KEEP_SECONDS)
            for _ in range(90):
                shim.beat(None)
                assert shim.receive()
                clock.advance(1)

        with child_that(live) as child:
            assert await_rest(child) == signal.SIGKILL
            assert 79 <= clock() <= 82
