"""Jobs with warm spares. That nothing is left is checked by `run_hvdft` after every run."""

import sys
from pathlib import Path

import pytest
from conftest import ROOT, SCRIPTS, Ended, Once, RunHvdft
from test_recovery import compare

from hvd_ft.reports.report import failures

SCRIPT = str(SCRIPTS / "spare_script.py")
QUICK = f"{ROOT / 'tests' / 'without_tensorflow'}:{ROOT}"
# The launcher takes the place of the shell, so that a worker knows its process id.
SHELL = ["sh", "-c", 'LAUNCHER=$$ exec "$0" -m hvd_ft.cli "$@"', sys.executable]
TAKEN = "has taken over"


def run(run_hvdft: RunHvdft, what: str, env: dict[str, str] | None = None) -> Ended:
    """Runs a job of two ranks, with spares that import nothing."""
    arguments = ["run", "-np", "2", "--spares", "1", sys.executable, SCRIPT, what]
    return run_hvdft(arguments, program=SHELL, env={"PYTHONPATH": QUICK, **(env or {})})


@pytest.mark.shows(later=True)
def test_two_ranks_killed_one_after_the_other(
    run_hvdft: RunHvdft, once: Once, tmp_path: Path
) -> None:
    drills = ["rank=1,step=13", "rank=2,step=20", "rank=2,incarnation=1,point=start"]
    flags, env = ["--spares", "1"], {"AWAIT_SPARES": "1:12:1 2:19:2"}
    run = compare(run_hvdft, once, tmp_path, "keras", drills, flags=flags, env=env)
    assert run.err.count(TAKEN) == 2
    assert [run.results[rank].incarnation for rank in range(3)] == [0, 1, 2]
    found = failures(run.report.events)[:2]
    assert [failure.rank for failure in found] == [1, 2]
    # The order in time; that a spare is quick is measured by experiments/recovery_time.
    [first] = [failure for failure in found if failure.rank == 1]
    assert first.started_ns and first.attached_ns and first.joined_ns
    assert first.failed_ns <= first.started_ns < first.attached_ns < first.joined_ns


def test_a_spare_that_is_killed_while_it_waits_is_replaced(run_hvdft: RunHvdft) -> None:
    ended = run(run_hvdft, "waiting")
    assert ended.code == 5, ended.err  # as the script in the spare said
    assert ended.err.count(TAKEN) == 1
    assert "RuntimeError: boom" in ended.err


def test_an_exception_in_a_spare_is_a_failure_like_any_other(run_hvdft: RunHvdft) -> None:
    ended = run(run_hvdft, "again")
    assert ended.code == 0, ended.err
    assert "RuntimeError: boom" in ended.err
    assert "hvd_ft/spare" not in ended.err
    assert sorted(ended.out.splitlines()) == ["END 0 0", "END 1 2"]


@pytest.mark.parametrize("victim", ["spare-shim", "manager"])
def test_who_loses_its_spare_shim_dies_and_is_restarted(run_hvdft: RunHvdft, victim: str) -> None:
    ended = run(run_hvdft, victim)
    assert ended.code == 0, ended.err
    assert sorted(ended.out.splitlines()) == ["END 0 0", "END 1 2"]
    assert ("spares are no longer prepared" in ended.err) == (victim == "manager")


@pytest.mark.parametrize("env", [{}, {"SPARES_NEVER_READY": "1"}], ids=["ready", "preparing"])
@pytest.mark.parametrize(
    ("what", "code"),
    [("ctrl-c", 130), ("launcher", -9), ("shim", 130)],
)
def test_spares_end_with_the_job(
    run_hvdft: RunHvdft, what: str, code: int, env: dict[str, str]
) -> None:
    ended = run(run_hvdft, what, env)
    assert ended.code == code, ended.err
    assert "Traceback" not in ended.err


def test_a_command_that_no_spare_can_run_is_refused(run_hvdft: RunHvdft) -> None:
    ended = run_hvdft(["run", "-np", "1", "--spares", "1", "sh", "-c", "true"])
    assert ended.code == 2
    [line] = ended.err.splitlines()
    assert "--spares needs the command python" in line
