"""The processes of a job are found by their environment, and ended within a limit."""

import os
import subprocess
from collections.abc import Iterator

import psutil
import pytest

from hvd_ft.job import processes
from hvd_ft.job.directory import new_job_id


@pytest.fixture
def sleeper() -> Iterator[tuple[str, psutil.Process]]:
    """A process of a job, and the job's id."""
    job = new_job_id()
    with subprocess.Popen(["sleep", "600"], env={**os.environ, "HOROVOD_FT_JOB": job}) as process:
        yield job, psutil.Process(process.pid)
        process.kill()


def test_who_does_not_end_is_killed(
    sleeper: tuple[str, psutil.Process], capsys: pytest.CaptureFixture[str]
) -> None:
    job, process = sleeper
    assert processes.job_processes(job) == [process]
    processes.end_processes(job, patience_seconds=0)
    assert processes.job_processes(job) == []
    assert process.status() == psutil.STATUS_ZOMBIE
    assert capsys.readouterr().err == ""


def test_who_cannot_be_killed_is_named(
    sleeper: tuple[str, psutil.Process],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job, process = sleeper
    monkeypatch.setattr(psutil.Process, "kill", lambda process: None)
    monkeypatch.setattr(processes, "KILL_LIMIT_SECONDS", 0.05)
    processes.end_processes(job, patience_seconds=0)
    said = capsys.readouterr().err
    assert said.startswith(f"hvdft: processes [{process.pid}] do not die of SIGKILL")
