"""Jobs with warm spares. That nothing is left is checked by `run_hvdft` after every run."""

import sys
from pathlib import Path

import pytest
from conftest import Ended, RunHvdft
from test_recovery import RANKS, train

from hvd_ft.report import failures

SCRIPT = str(Path(__file__).with_name("spare_script.py"))
# The launcher takes the place of the shell, so that a worker knows its process id.
SHELL = ["sh", "-c", 'LAUNCHER=$$ exec "$0" -m hvd_ft.cli "$@"', sys.executable]
TAKEN = "has taken over"


def run(run_hvdft: RunHvdft, what: str) -> Ended:
    arguments = ["run", "-np", "2", "--spares", "1", sys.executable, SCRIPT, what]
    return run_hvdft(arguments, program=SHELL, timeout=120)


def test_two_ranks_killed_one_after_the_other(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    undisturbed = train(run_hvdft, tmp_path, "keras").results
    drills = ["rank=1,step=13", "rank=2,step=20", "rank=2,incarnation=1,point=start"]
    flags, env = ["--spares", "1"], {"AWAIT_SPARES": "1:12:1 2:19:2"}
    run = train(run_hvdft, tmp_path, "keras", drills, flags=flags, env=env)
    assert run.err.count(TAKEN) == 2
    for rank in range(RANKS):
        assert run.results[rank].weights == undisturbed[rank].weights
        assert run.results[rank].statistics == undisturbed[rank].statistics
    assert [run.results[rank].incarnation for rank in range(RANKS)] == [0, 1, 2]
    found = failures(run.events)[:2]
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
    assert sorted(line for line in ended.out.splitlines() if line.startswith("TOTAL")) == [
        "TOTAL 0 0 2.0",
        "TOTAL 1 2 2.0",
    ]


@pytest.mark.parametrize("victim", ["holder", "keeper"])
def test_who_loses_its_holder_dies_and_is_restarted(run_hvdft: RunHvdft, victim: str) -> None:
    ended = run(run_hvdft, victim)
    assert ended.code == 0, ended.err
    assert "TOTAL 1 2 2.0" in ended.out
    assert ("nobody prepares spares any more" in ended.err) == (victim == "keeper")


@pytest.mark.parametrize("victim", ["launcher", "nursery"])
def test_spares_end_with_the_job(run_hvdft: RunHvdft, victim: str) -> None:
    assert run(run_hvdft, victim).code != 0


def test_a_command_that_no_spare_can_run_is_refused(run_hvdft: RunHvdft) -> None:
    ended = run_hvdft(["run", "-np", "1", "--spares", "1", "sh", "-c", "true"])
    assert ended.code == 2
    [line] = ended.err.splitlines()
    assert "--spares needs the command python" in line
