"""The starter of shims, with real shims: it outlives agents, and ends with the launcher."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.shim import starter
from hvd_ft.shim.client import ShimClient
from hvd_ft.shim.messages import Report, Started
from hvd_ft.shim.shim import WORKER

TIMEOUT_SECONDS = 30.0
SLEEPS = ["sleep", "600"]


class Running:
    """A starter that listens."""

    def __init__(self) -> None:
        self.name = f"test-{uuid.uuid4().hex}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hvd_ft.shim.starter", self.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OF": "the starter"},
        )
        assert self.process.stdout
        assert self.process.stdout.readline().decode() == f"listens {socket.gethostname()}\n"

    def launcher_ends(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()


@pytest.fixture
def running() -> Iterator[Running]:
    one = Running()
    yield one
    one.process.kill()
    one.process.wait()


def await_end(pid: int) -> None:
    try:
        ended = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    assert select.select([ended], [], [], TIMEOUT_SECONDS)[0], f"{pid} lives"
    os.close(ended)


def report(shim: ShimClient, kind: type[Report]) -> Report:
    while True:
        reports = shim.receive()
        assert reports is not None
        for each in reports:
            if isinstance(each, kind):
                return each


def start(shim: ShimClient, command: list[str], env: dict[str, str] | None = None) -> int:
    shim.start(WORKER, command, {**os.environ, **(env or {})}, "/")
    started = report(shim, Started)
    assert isinstance(started, Started)
    return started.pid


def test_a_shim_is_the_starters_child_with_the_agents_environment_and_streams(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF", "the agent")
    monkeypatch.chdir(tmp_path)
    shim = ShimClient.begin(running.name)
    worker = psutil.Process(start(shim, SLEEPS))
    process = psutil.Process(shim.pid)
    assert worker.ppid() == shim.pid
    assert process.ppid() == running.process.pid
    assert process.environ()["OF"] == "the agent"
    assert process.cwd() == str(tmp_path)
    assert os.readlink(f"/proc/{shim.pid}/fd/0") == os.readlink("/proc/self/fd/0")
    assert os.getsid(shim.pid) == shim.pid
    assert shim.end(TIMEOUT_SECONDS)
    await_end(worker.pid)


def test_it_ends_when_the_launcher_has_ended_and_no_shim_is_left(running: Running) -> None:
    shims = [ShimClient.begin(running.name) for _ in range(2)]
    running.launcher_ends()
    assert shims[0].end(TIMEOUT_SECONDS)
    start(shims[1], SLEEPS)
    assert running.process.poll() is None
    assert shims[1].end(TIMEOUT_SECONDS)
    assert running.process.wait(TIMEOUT_SECONDS) == 0


def test_what_a_killed_shim_leaves_is_killed_and_nothing_else(running: Running) -> None:
    shims = [ShimClient.begin(running.name) for _ in range(2)]
    script = 'setsid sleep 600 & echo $! > "$0"; exec sleep 600'
    fifo = f"/dev/shm/{running.name}"
    os.mkfifo(fifo)
    try:
        start(shims[0], ["sh", "-c", script, fifo])
        with open(fifo) as file:
            orphan = int(file.read())
    finally:
        os.unlink(fifo)
    other = start(shims[1], SLEEPS)
    before = shims[0].pid
    shims[0].kill_itself()
    await_end(orphan)
    shims[0].replace()
    assert shims[0].pid != before
    assert psutil.Process(shims[0].pid).ppid() == running.process.pid
    start(shims[0], SLEEPS)
    assert psutil.pid_exists(other)
    assert all(shim.end(TIMEOUT_SECONDS) for shim in shims)


def test_signals_of_the_scheduler_end_neither_it_nor_shims(running: Running) -> None:
    shim = ShimClient.begin(running.name)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1):
        running.process.send_signal(number)
    for number in (signal.SIGTERM, signal.SIGHUP):
        os.kill(shim.pid, number)
    ShimClient.begin(running.name).end(TIMEOUT_SECONDS)
    start(shim, SLEEPS)
    assert running.process.poll() is None
    assert shim.end(TIMEOUT_SECONDS)


@pytest.mark.parametrize(("grace", "ignored"), [("60", True), ("", False)])
def test_a_worker_survives_the_schedulers_signal_if_there_is_a_grace(
    running: Running, grace: str, ignored: bool
) -> None:
    shim = ShimClient.begin(running.name)
    worker = start(shim, SLEEPS, {"HOROVOD_FT_GRACE_SECONDS": grace})
    [mask] = [
        int(line.split()[1], 16)
        for line in Path(f"/proc/{worker}/status").read_text().splitlines()
        if line.startswith("SigIgn")
    ]
    assert bool(mask & 1 << signal.SIGTERM - 1) == ignored
    assert shim.end(TIMEOUT_SECONDS)


def test_without_a_starter_agents_start_their_shims(
    running: Running, capfd: pytest.CaptureFixture[str]
) -> None:
    shim = ShimClient.begin(running.name)
    running.process.kill()
    running.process.wait()
    shim.kill_itself()
    await_end(shim.pid)
    shim.replace()
    assert psutil.Process(shim.pid).ppid() == os.getpid()
    assert shim.end(TIMEOUT_SECONDS)
    other = ShimClient.begin(running.name)
    assert psutil.Process(other.pid).ppid() == os.getpid()
    assert other.end(TIMEOUT_SECONDS)
    assert capfd.readouterr().err.count("this agent starts its shim itself") == 2


def test_another_users_starter_is_not_trusted(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(HvdFtError, match=r"does not answer \(PermissionError"):
        starter.start_shim(running.name)


@pytest.mark.parametrize("send", [lambda end: None, lambda end: end.sendall(b"no order\n")])
def test_a_stranger_gets_nothing(running: Running, send: Callable[[socket.socket], None]) -> None:
    with socket.socket(socket.AF_UNIX) as end:
        end.connect(starter.address(running.name))
        send(end)
        end.shutdown(socket.SHUT_WR)
        end.settimeout(TIMEOUT_SECONDS)
        with contextlib.suppress(ConnectionResetError):
            assert end.recv(1) == b""
    shim = ShimClient.begin(running.name)
    assert shim.end(TIMEOUT_SECONDS)
