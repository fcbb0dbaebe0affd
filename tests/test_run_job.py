"""`hvdft run` with the real Intel MPI, agents and core; the worker does without TensorFlow.

That no process and no file is left is checked by `run_hvdft` after every run.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Ended, RunHvdft

from hvd_ft.facts import EventType
from hvd_ft.report import failures, read_report

RunJob = Callable[..., Ended]

WORKER = """\
import os, signal, sys
import psutil
from hvd_ft import native

worker = native.worker()
first = worker.rank == 0 and worker.incarnation == 0
launcher = psutil.Process(int(os.environ["LAUNCHER"]))


def end(code=0):
    worker.orderly_exit()
    sys.exit(code)


def wait():
    while True:
        signal.pause()


{body}
"""

# The launcher takes the place of the shell, so that a worker knows its process id.
SHELL = ["sh", "-c", 'LAUNCHER=$$ exec "$0" -m hvd_ft.cli "$@"', sys.executable]


@pytest.fixture
def run_job(run_hvdft: RunHvdft, tmp_path: Path) -> RunJob:
    """Gives a function that runs `body` on two ranks, with flags of `hvdft run`."""

    def run(body: str, *flags: str) -> Ended:
        script = tmp_path / "worker.py"
        script.write_text(WORKER.format(body=body))
        arguments = ["run", "-np", "2", *flags, "python", str(script)]
        return run_hvdft(arguments, program=SHELL)

    return run


def test_a_job_whose_workers_end_well_ends_with_0(run_job: RunJob) -> None:
    # One write each, so that the ranks' lines do not mix.
    ended = run_job("os.write(1, b'rank %d of %d\\n' % (worker.rank, worker.size)); end()")
    assert ended.code == 0, ended.err
    assert sorted(ended.out.splitlines()) == ["rank 0 of 2", "rank 1 of 2"]


def test_the_exit_code_is_the_workers(run_job: RunJob) -> None:
    assert run_job("end(3)").code == 3


def test_a_worker_that_dies_is_restarted_and_the_report_tells(
    run_job: RunJob, tmp_path: Path
) -> None:
    report, picture, hook = (tmp_path / name for name in ("r.jsonl", "p.png", "hook"))
    ended = run_job(
        "if first: os.kill(os.getpid(), signal.SIGKILL)\nend()",
        *("--report", str(report), "--picture", str(picture)),
        *("--on-failure", f"echo $HOROVOD_FT_RANK > {hook}"),
    )
    assert ended.code == 0, ended.err
    found = read_report(report)
    [failure] = failures(found.events)
    assert (failure.rank, failure.incarnation, failure.cause) == (0, 0, "signal 9")
    assert failure.process_start is not None
    assert [e.rank for e in found.events if e.type is EventType.DONE].count(0) == 1
    assert hook.read_text() == "0\n"
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_ends_the_job(run_job: RunJob, name: str, code: int) -> None:
    ended = run_job(f"if first: launcher.send_signal(signal.{name})\nwait()")
    assert ended.code == code
    assert "Traceback" not in ended.err


def test_a_killed_launcher_takes_the_job_along(run_job: RunJob) -> None:
    assert run_job("if first: launcher.kill()\nwait()").code == -9
