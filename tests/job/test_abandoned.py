"""A job of which only processes are left that are stopped for ever counts as dead."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hvd_ft.job import abandoned
from hvd_ft.job.abandoned import Holder, are_abandoned
from hvd_ft.job.directory import JobDirectory, dead_jobs, new_job_id, sweep_stale

GONE, THERE = "n0:1:key", "n0:2:key"
LEFT = Holder(stopped=True, connected=False, launcher=GONE)
# As a shim: holds the lock of the job's directory, and knows its launcher.
HOLD = """
import sys
from hvd_ft.job.directory import JobDirectory
directory = JobDirectory.join(sys.argv[1])
print("holds", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("holders", "verdict"),
    [
        ([LEFT], True),
        ([LEFT, LEFT], True),
        ([], False),  # somebody holds the lock who is not known
        ([Holder(False, False, GONE)], False),
        ([LEFT, Holder(False, False, GONE)], False),  # it will end the job's processes itself
        ([Holder(True, False, THERE)], False),  # a shell's ^Z
        ([LEFT, Holder(True, False, THERE)], False),
        ([Holder(True, True, GONE)], False),  # with another launcher, after a resumption
        ([Holder(True, False, None)], False),  # under horovodrun, or in another network
    ],
)
def test_stopped_processes_without_a_launcher_are_left_for_ever(
    holders: list[Holder], verdict: bool
) -> None:
    assert are_abandoned(holders, lambda address: address == GONE) == verdict


@pytest.fixture
def launcher() -> Iterator[socket.socket]:
    """What listens where the job's launcher did."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture
def shim(launcher: socket.socket, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock of a job; the job's id is its second argument."""
    job = new_job_id()
    directory = JobDirectory.create(str(tmp_path), job)
    address = f"127.0.0.1:{launcher.getsockname()[1]}:key"
    environment = {**os.environ, "HOROVOD_FT_JOB": job, "HOROVOD_FT_LAUNCHER": address}
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, directory.path, job],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout and process.stdout.readline() == "holds\n"
        directory.leave()
        yield process
        process.kill()


def stop(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)


def job_of(process: subprocess.Popen[str]) -> str:
    assert isinstance(process.args, list)
    return str(process.args[-1])


def test_a_shim_that_was_stopped_for_ever_is_ended_and_swept(
    shim: subprocess.Popen[str], launcher: socket.socket, tmp_path: Path
) -> None:
    job = job_of(shim)
    stop(shim)
    assert (dead_jobs(str(tmp_path)), sweep_stale(str(tmp_path))) == ({}, [])
    launcher.close()
    assert dead_jobs(str(tmp_path)) == {job: False}
    assert psutil.Process(shim.pid).status() == psutil.STATUS_STOPPED  # only asked
    assert sweep_stale(str(tmp_path), but=job) == []
    assert sweep_stale(str(tmp_path)) == [job]
    assert shim.wait() == -signal.SIGKILL


def test_a_shim_that_runs_ends_by_itself(
    shim: subprocess.Popen[str], launcher: socket.socket, tmp_path: Path
) -> None:
    launcher.close()
    assert sweep_stale(str(tmp_path)) == []
    assert shim.poll() is None


def test_a_launcher_in_another_network_is_not_asked(
    shim: subprocess.Popen[str],
    launcher: socket.socket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody listens at that address here, which says nothing."""
    stop(shim)
    launcher.close()
    there, stat = f"/proc/{shim.pid}/ns/net", os.stat
    monkeypatch.setattr(
        abandoned.os, "stat", lambda path: stat("/proc/self/ns/pid" if path == there else path)
    )
    assert sweep_stale(str(tmp_path)) == []
