"""`hvdft run` with the real Intel MPI, agents and core; the worker does without TensorFlow.

That no process and no file is left is checked by `run_hvdft` after every run.
"""

import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, Device, Ended, RunHvdft
from jsonschema import Draft202012Validator

from hvd_ft.native.types import EventType
from hvd_ft.reports.report import failures, read_report

RunJob = Callable[..., Ended]
SCHEMA = ROOT / "hvd_ft/reports/report.schema.json"

WORKER = """\
import os, signal, sys, time
import psutil
from hvd_ft import native
from hvd_ft.worker.exit_reason import keep_last_words

keep_last_words()
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


@pytest.mark.shows
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
    schema = Draft202012Validator(json.loads(SCHEMA.read_text()))
    assert not [line for line in report.read_text().splitlines()
                if not schema.is_valid(json.loads(line))]  # fmt: skip
    assert 0 < found.facts["begun_ns"] < found.events[0].time_ns
    assert [e.rank for e in found.events if e.type is EventType.DONE].count(0) == 1
    assert hook.read_text() == "0\n"
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.shows
@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_ends_the_job(run_job: RunJob, name: str, code: int) -> None:
    ended = run_job(f"if first: launcher.send_signal(signal.{name})\nwait()")
    assert ended.code == code
    assert "Traceback" not in ended.err
    assert [line for line in ended.err.splitlines() if "stopped" in line] == [
        f"hvdft: stopped by {name}"
    ]
    assert ended.out == ""  # nothing of Hydra's


SAVES = """
try:
    open(f"{{__file__}}.{{worker.rank}}", "w").close()  # Ctrl-C before would not be caught
    while first and not all(os.path.exists(f"{{__file__}}.{{r}}") for r in range(worker.size)):
        time.sleep(0.01)  # no event tells of it
    if first:
        launcher.send_signal(signal.SIGINT)
    wait()
except KeyboardInterrupt:
    {then}
    os.write(1, b"saved\\n")
end(7)
"""


def test_a_script_can_save_when_the_user_presses_ctrl_c(run_job: RunJob) -> None:
    ended = run_job(SAVES.format(then="pass"))
    assert (ended.code, ended.out) == (130, "saved\n" * 2), ended


def test_who_presses_ctrl_c_again_waits_for_nothing(run_job: RunJob) -> None:
    then = "launcher.send_signal(signal.SIGINT) if first else None; wait()"
    ended = run_job(SAVES.format(then=then))
    assert (ended.code, ended.out) == (130, ""), ended


def test_saving_has_its_limit(run_job: RunJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_FT_STOP_GRACE_SECONDS", "0.5")
    ended = run_job(SAVES.format(then="wait()"))
    assert (ended.code, ended.out) == (130, ""), ended


def test_a_script_that_is_still_importing_has_nothing_to_say(
    run_hvdft: RunHvdft, tmp_path: Path
) -> None:
    script = tmp_path / "imports.py"
    script.write_text(
        "import os, signal\nos.kill(int(os.environ['LAUNCHER']), signal.SIGINT)\nsignal.pause()\n"
    )
    ended = run_hvdft(["run", "-np", "1", "python", str(script)], program=SHELL)
    assert ended.code == 130
    assert ended.err == "hvdft: stopped by SIGINT\n"


@pytest.mark.shows
@pytest.mark.parametrize(
    ("script", "code", "line"),
    [
        ("import sys; sys.exit(3)", 3, "ended with exit code 3 before hvd.init(); what it"),
        ("import nothing_of_that_name", 1, "ended with exit code 1 before hvd.init(); what it"),
        ("this is no Python", 1, "ended with exit code 1 before hvd.init(); what it"),
        (
            "from hvd_ft.worker.exit_reason import keep_last_words; keep_last_words(); 1 / 0",
            1,
            "before hvd.init(): ZeroDivisionError: division by zero (",
        ),
        (
            "from hvd_ft import native\nfrom hvd_ft.errors import HvdFtError\n"
            "from hvd_ft.worker import exit_reason\n"
            "exit_reason.keep_last_words(); native.worker(); raise HvdFtError('a wrong setting')",
            1,
            "hvdft: rank 0: a wrong setting",
        ),
        (
            "from hvd_ft import native\nfrom hvd_ft.worker import exit_reason\n"
            "exit_reason.keep_last_words(); native.worker(); [].pop()",
            1,
            "rank 0 failed again at step 0 with the same error, so it is not restarted: "
            "IndexError: pop from empty list (",
        ),
    ],
    ids=["sys.exit", "import", "syntax", "exception", "ours", "twice"],
)
def test_what_fails_again_and_again_is_not_tried_again_and_again(
    run_hvdft: RunHvdft, tmp_path: Path, script: str, code: int, line: str
) -> None:
    path = tmp_path / "fails.py"
    path.write_text(script)
    ended = run_hvdft(["run", "-np", "1", "python", str(path)])
    assert ended.code == code
    ours = [said for said in ended.err.splitlines() if said.startswith("hvdft:")]
    assert any(line in said for said in ours), ours
    assert sum("restarting as incarnation" in said for said in ours) == ("again" in line)


@pytest.mark.shows
def test_a_killed_launcher_takes_the_job_along(
    run_job: RunJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch, report = tmp_path / "scratch", tmp_path / "r.jsonl"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    assert run_job("if first: launcher.kill()\nwait()", "--report", str(report)).code == -9
    found = read_report(report)
    assert not found.finished
    assert {(event.rank, event.type) for event in found.events} >= {(0, EventType.STARTED)}
    # Nor is anything left of what a picture is drawn from.
    picture = tmp_path / "p.png"
    assert run_job("if first: launcher.kill()\nwait()", "--picture", str(picture)).code == -9
    assert list(scratch.iterdir()) == []
    assert not picture.exists()


def test_the_report_of_a_job_whose_agent_died_is_one(run_job: RunJob, tmp_path: Path) -> None:
    report = tmp_path / "r.jsonl"
    # What the first agent has written stays: it is marked here.
    body = f"""
if first:
    agent = psutil.Process().parents()[1]
    agent.suspend()
    with open({str(report)!r}, "r+") as file:
        marked = file.read().replace('"version": "', '"version": "marked ')
        file.seek(0)
        file.write(marked)
    agent.kill()
end()
"""
    ended = run_job(body, "--report", str(report))
    assert ended.code == 0, ended.err
    assert "starting generation 1 of its agents" in ended.err
    found = read_report(report)
    assert found.finished
    once = [(e.rank, e.type) for e in found.events if e.type is EventType.STARTED]
    assert sorted(once) == [(0, EventType.STARTED), (1, EventType.STARTED)]
    assert {e.rank for e in found.events if e.type is EventType.ADOPTED} == {0, 1}
    assert report.read_text().count('"job"') == 1
    assert found.facts["version"].startswith("marked ")


@pytest.mark.parametrize(("code", "expected"), [(0, 74), (3, 3)])
def test_a_report_that_cannot_be_written_is_said_by_the_code_if_the_job_went_well(
    run_job: RunJob, device: Device, code: int, expected: int
) -> None:
    full = device("full")
    ended = run_job(f"end({code})", "--report", full)
    assert ended.code == expected
    assert ended.err.count(f"the report {full} could not be written (No space left") == 1
    assert stat.S_ISCHR(os.stat(full).st_mode)


@pytest.mark.long
def test_a_start_that_takes_long_is_followed(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    script = tmp_path / "slow.py"
    script.write_text("import time\ntime.sleep(12)\n")
    ended = run_hvdft(["run", "-np", "2", "python", str(script)])
    assert ended.code == 0
    assert "hvdft: 0 of 2 ranks have begun, after 1" in ended.err


def test_no_report_is_a_legal_report(run_job: RunJob, device: Device) -> None:
    null = device("null")
    assert run_job("end()", "--report", null).code == 0
    assert stat.S_ISCHR(os.stat(null).st_mode)


def test_a_setting_that_is_none_is_refused(
    run_job: RunJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROVOD_FT_MAX_FAILURE", "1")
    ended = run_job("end()")
    assert ended.code == 2
    assert ended.err.startswith(
        "hvdft: HOROVOD_FT_MAX_FAILURE is not a setting of hvd_ft: is HOROVOD"
    )
    assert ended.err.count("\n") == 1
