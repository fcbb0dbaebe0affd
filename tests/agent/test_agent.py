"""Agents under the real mpirun, over workers that need no TensorFlow.

`run_hvdft` checks after every run that no process and no job directory is left.
"""

import json
import os
import re
import signal
import stat
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from conftest import Ended, RunHvdft

from hvd_ft.job.directory import JobDirectory
from hvd_ft.mpi.environment import mpi_environment

RunAgents = Callable[..., Ended]

# Whether Horovod fits is tested elsewhere; these workers do without it.
PROGRAM = """\
import sys
from hvd_ft.agent import main as agent
agent.check_environment = dict
sys.exit(agent.main())
"""
# Rank 0's agent starts its worker only when a signal has come.
LATE_PROGRAM = (
    """\
import os, select
from hvd_ft.agent import main as agent

def late(**given):
    select.select([given["signals"]], [], [])
    return supervisor(**given)

supervisor = agent.SupervisorLoop
if os.environ["PMI_RANK"] == "0":
    agent.SupervisorLoop = late
"""
    + PROGRAM
)
# Rank 1's gets the signal after the other has ended the job, as Hydra sends it to one by one.
LATE_SIGNAL_PROGRAM = (
    """\
import os, signal
from hvd_ft.agent import main as agent

def finalize(self):
    os.kill(os.getpid(), signal.SIGINT)
    leave(self)

leave = agent.Rendezvous.finalize
if os.environ["PMI_RANK"] == "1":
    agent.Rendezvous.finalize = finalize
"""
    + PROGRAM
)
AGENT = [sys.executable, "-c", PROGRAM]
LATE_AGENT = [sys.executable, "-c", LATE_PROGRAM]
LATE_SIGNAL_AGENT = [sys.executable, "-c", LATE_SIGNAL_PROGRAM]

WORKER = """\
import os, signal, subprocess, sys
import psutil

rank = int(os.environ["HOROVOD_RANK"])
incarnation = int(os.environ["HOROVOD_FT_INCARNATION"])
shim, agent, *above = psutil.Process().parents()
mpirun = next(process for process in above if process.name() == "mpiexec.hydra")


def tell(*words):
    os.write(1, f"{' '.join(map(str, words))}\\n".encode())  # in one piece


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def hang():
    tell("hangs")
    # Also a child and a grandchild in a session of its own, that mind no SIGTERM.
    script = "trap '' TERM; sleep 600 & setsid sleep 600 & wait"
    subprocess.Popen(["sh", "-c", script], start_new_session=True)
    while True:
        signal.pause()


"""


@pytest.fixture
def run_agents(run_hvdft: RunHvdft, tmp_path: Path) -> RunAgents:
    """Returns a function that runs agents, 2 by default, over a worker with this body."""

    def run(
        body: str,
        *flags: str,
        size: int = 2,
        env: dict[str, str] | None = None,
        launcher: Sequence[str] = ("mpiexec.hydra",),
        agent: Sequence[str] = AGENT,
    ) -> Ended:
        script = tmp_path / "worker.py"
        script.write_text(WORKER + body)
        program = [*launcher, "-n", str(size), *agent, *flags]
        return run_hvdft(
            ["--", sys.executable, str(script)],
            env={**mpi_environment(), **(env or {})},
            program=program,
        )

    return run


def messages(ended: Ended) -> list[str]:
    return [line for line in ended.err.splitlines() if line.startswith("hvdft:")]


def test_a_job_that_goes_well_ends_with_0(run_agents: RunAgents) -> None:
    ended = run_agents("tell(rank, incarnation)", size=3)
    assert (ended.code, messages(ended)) == (0, [])
    assert sorted(ended.out.split("\n")) == ["", "0 0", "1 0", "2 0"]


@pytest.mark.shows
def test_a_worker_that_dies_is_started_again(run_agents: RunAgents) -> None:
    ended = run_agents("tell(rank, incarnation)\nif rank == 1 and incarnation < 2: die()")
    assert ended.code == 0
    assert sorted(ended.out.split("\n")) == ["", "0 0", "1 0", "1 1", "1 2"]
    assert messages(ended) == [
        f"hvdft: rank 1 died (signal 9, SIGKILL) at step 0; restarting as incarnation {number}"
        for number in (1, 2)
    ]


def test_a_drill_is_handed_to_its_worker_only(run_agents: RunAgents) -> None:
    ended = run_agents(
        'tell(rank, incarnation, "HOROVOD_FT_INJECT" in os.environ)\n'
        "if rank == 1 and incarnation < 2: die()",
        *("--inject", "rank=1,step=1,incarnation=1"),
    )
    assert ended.code == 0
    assert sorted(ended.out.split("\n")) == ["", "0 0 False", "1 0 False", "1 1 True", "1 2 False"]


@pytest.mark.parametrize(
    ("drill", "said"),
    [("rank=2,step=1", "the job's ranks are 0 to 1"), ("rank=0", "give one of step=N, op=N and")],
)
def test_a_drill_that_cannot_be_is_said_once(run_agents: RunAgents, drill: str, said: str) -> None:
    ended = run_agents("tell(rank)", "--inject", drill)
    assert (ended.code, ended.out) == (2, "")
    [message] = messages(ended)
    assert message.startswith(f"hvdft: --inject '{drill}': ")
    assert said in message


def test_one_agent_needs_no_launcher(run_hvdft: RunHvdft) -> None:
    code = "import os; print(os.environ['HOROVOD_SIZE'])"
    ended = run_hvdft([sys.executable, "-c", code], env=mpi_environment(), program=AGENT)
    assert (ended.code, ended.out) == (0, "1\n")


def test_an_orderly_exit_code_is_the_jobs(run_agents: RunAgents) -> None:
    body = "from hvd_ft import native\nnative.worker().orderly_exit()\nsys.exit(7 * rank)"
    ended = run_agents(body)
    assert ended.code == 7
    assert messages(ended) == ["hvdft: the worker of rank 1 ended with exit code 7"]


@pytest.mark.shows
def test_a_crash_loop_ends_the_job(run_agents: RunAgents) -> None:
    body = "if rank == 0:\n    tell('last words')\n    die()\nhang()"
    ended = run_agents(body, env={"HOROVOD_FT_MAX_FAILURES": "1"})
    assert ended.code == 128 + 9
    assert ended.out.count("last words") == 2
    failed = "rank 0 failed 2 times within 300 s (HOROVOD_FT_MAX_FAILURES is 1), the last time"
    assert f"{failed} at step 0: signal 9, SIGKILL;" in ended.err


def test_a_rank_that_does_not_come_back_ends_the_job(run_agents: RunAgents) -> None:
    body = "if rank == 0 and incarnation == 0: die()\nhang()"
    limits = {"HOROVOD_FT_RECOVERY_TIMEOUT_SECONDS": "0.5"}
    ended = run_agents(body, env=limits)
    assert ended.code == 1
    assert "hvdft: rank 0 (incarnation 1, pid " in ended.err
    assert "did not come back within 0.5 s" in ended.err


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_to_an_agent_ends_the_job(run_agents: RunAgents, name: str) -> None:
    ended = run_agents(f"if rank == 1: agent.send_signal(signal.{name})\nhang()")
    assert ended.code == 128 + getattr(signal, name)
    assert messages(ended) == [f"hvdft: stopped by {name}"]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_to_mpirun_ends_the_job(run_agents: RunAgents, name: str) -> None:
    ended = run_agents(f"if rank == 1: mpirun.send_signal(signal.{name})\nhang()")
    assert ended.code == 128 + getattr(signal, name)
    assert [line for line in messages(ended) if "stopped by" in line] == [
        f"hvdft: stopped by {name}"
    ]


def test_a_signal_ends_the_job_though_an_agent_is_late(run_agents: RunAgents) -> None:
    body = "if rank == 1: mpirun.send_signal(signal.SIGTERM)\nhang()"
    ended = run_agents(body, agent=LATE_AGENT)
    assert ended.code == 128 + signal.SIGTERM, ended.err


def test_a_signal_may_reach_an_agent_when_the_job_has_ended(run_agents: RunAgents) -> None:
    ended = run_agents(
        "if rank == 0: agent.send_signal(signal.SIGINT)\nhang()", agent=LATE_SIGNAL_AGENT
    )
    assert ended.code == 128 + signal.SIGINT, ended.err


@pytest.mark.shows
@pytest.mark.parametrize("victim", ["agent", "shim", "mpirun"])
def test_nothing_is_left_when_something_is_killed(run_agents: RunAgents, victim: str) -> None:
    ended = run_agents(f"if rank == 1: {victim}.kill()\nhang()")
    assert ended.code not in (0, 2), ended.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_job_ends_with_the_script_that_started_mpirun(
    run_agents: RunAgents, number: signal.Signals
) -> None:
    # mpirun is a script that passes no signal on; horovodrun becomes another.
    body = f"if rank == 1: mpirun.parent().send_signal({number.value})\nhang()"
    ended = run_agents(body, launcher=["mpirun"])
    assert ended.code == -number
    assert re.search(r"hvdft: mpirun \(pid \d+\) was killed, so the job ends", ended.err)


@pytest.mark.parametrize(
    ("strike", "env", "line"),
    [
        ("kill", {}, "was killed, and its worker with it; another one (pid "),
        ("suspend", {"HOROVOD_FT_LEASE_SECONDS": "8"}, "was stopped, so it was killed"),
    ],
)
def test_another_shim_takes_the_place_of_one_that_dies_or_is_stopped(
    run_agents: RunAgents, strike: str, env: dict[str, str], line: str
) -> None:
    body = f"""
if rank == 1 and incarnation == 0:
    # Also what is in a session of its own has to go.
    subprocess.Popen(["setsid", "sleep", "600"])
    shim.{strike}()
    hang()
tell("end", rank, incarnation, shim.pid)
"""
    ended = run_agents(body, env=env)
    assert ended.code == 0, ended.err
    assert sorted(re.findall(r"end (\d) (\d)", ended.out)) == [("0", "0"), ("1", "1")]
    assert line in ended.err
    assert "rank 1 died (signal 9, SIGKILL) at step 0; restarting as incarnation 1" in ended.err


def test_a_worker_that_minds_no_sigterm_is_killed(run_agents: RunAgents) -> None:
    body = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if rank == 0: agent.terminate()
hang()
"""
    assert run_agents(body).code == 128 + 15


@pytest.mark.shows
def test_hook_commands(run_agents: RunAgents, tmp_path: Path) -> None:
    told = tmp_path / "told"
    command = (
        f'echo "$HOROVOD_FT_RANK $HOROVOD_FT_INCARNATION $HOROVOD_FT_EXIT_STATUS '
        f'${{PMI_RANK-none}}" >> {told}; exit 3'
    )
    ended = run_agents("if rank == 1 and incarnation == 0: die()", "--on-failure", command)
    assert ended.code == 0
    assert told.read_text() == "1 0 signal 9, SIGKILL none\n"
    assert "hvdft: rank 1: the --on-failure command failed (exit code 3)" in ended.err


def test_the_on_restart_command_runs_when_the_rank_is_back(
    run_agents: RunAgents, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    command = f'echo "$HOROVOD_FT_RANK $HOROVOD_FT_INCARNATION $HOROVOD_FT_OPS_REPLAYED" >> {told}'
    ended = run_agents(JOIN, "--on-restart", command)
    assert ended.code == 0, ended.err
    assert told.read_text() == "1 1 0\n"
    assert "hvdft: rank 1 is back after " in ended.err


JOIN = """
from hvd_ft.native import abi
core = abi.library()
assert core.hvdft_worker_open() == 0
core.hvdft_worker_caught_up()
if rank == 1 and incarnation == 0: die()
"""


@pytest.mark.shows
def test_the_report(run_agents: RunAgents, tmp_path: Path) -> None:
    path = tmp_path / "report.jsonl"
    run_agents("if rank == 1 and incarnation == 0: die()", "--report", str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(os.listdir(tmp_path)) == ["report.jsonl", "worker.py"]
    begin, *events, end = [json.loads(line) for line in path.read_text().splitlines()]
    assert begin["size"] == 2
    assert begin["command"] == [sys.executable, str(tmp_path / "worker.py")]
    assert begin["hosts"] == 2 * [os.uname().nodename]
    age = datetime.now(UTC) - datetime.fromisoformat(begin["date"])
    assert timedelta() <= age < timedelta(hours=1)
    assert (end["exit_code"], end["error"]) == (0, None)
    assert [rank["incarnation"] for rank in end["ranks"]] == [0, 1]
    own = [(event["type"], event["incarnation"]) for event in events if event["rank"] == 1]
    assert own == [("STARTED", 0), ("FAILED", 0), ("STARTED", 1), ("DONE", 1)]


@pytest.mark.shows
@pytest.mark.parametrize(
    ("flags", "command", "text"),
    [
        ([], ["python", "nothere.py"], "the script nothere.py was not found"),
        ([], ["/no/such/program"], "the command /no/such/program was not found"),
        ([], [], "no training command"),
        (["--frobnicate"], ["true"], "--frobnicate"),
        (["--report", "/no/such/r"], ["true"], "cannot write /no/such/r (/no/such is not a dir"),
    ],
)
def test_bad_input_is_told_once(
    run_hvdft: RunHvdft, flags: list[str], command: list[str], text: str
) -> None:
    program = ["mpiexec.hydra", "-n", "2", *AGENT]
    ended = run_hvdft([*flags, *command], env=mpi_environment(), program=program)
    assert ended.code == 2
    (line,) = ended.err.splitlines()
    assert line.startswith("hvdft: ")
    assert text in line


def test_a_wrong_setting_is_told_once(run_agents: RunAgents) -> None:
    ended = run_agents("", env={"HOROVOD_FT_MAX_FAILURES": "many"})
    assert ended.code == 2
    assert len(ended.err.splitlines()) == 1
    assert "HOROVOD_FT_MAX_FAILURES='many'" in ended.err


def test_a_setting_that_is_none_is_told_once(run_agents: RunAgents) -> None:
    ended = run_agents("", env={"HOROVOD_FT_ARENA_BYTE": "64M"})
    assert ended.code == 2
    [line] = messages(ended)
    assert "HOROVOD_FT_ARENA_BYTE is not a setting of hvd_ft: is HOROVOD_FT_ARENA_BYTES" in line


def test_only_the_host_of_rank_0_needs_a_place_for_the_report(
    run_hvdft: RunHvdft, tmp_path: Path
) -> None:
    report = tmp_path / "r.jsonl"
    # Rank 1 gets a directory that does not exist.
    script = f'test $PMI_RANK = 0 && r={report} || r=/no/such/r; exec "$@" --report $r true'
    program = ["mpiexec.hydra", "-n", "2", "sh", "-c", script, "sh", *AGENT]
    ended = run_hvdft([], env=mpi_environment(), program=program)
    assert (ended.code, ended.err) == (0, "")
    assert report.exists()


def test_a_job_id_that_is_taken_is_told_once(run_agents: RunAgents, arena_dir: Path) -> None:
    other = JobDirectory.create(str(arena_dir), "taken")
    try:
        with pytest.raises(AssertionError, match="a job directory is left"):
            run_agents("", env={"HOROVOD_FT_JOB": "taken"})
        assert os.listdir(other.path) == ["lock"]
    finally:
        other.leave()


def test_an_agent_does_not_wait_for_ever_for_the_others(run_hvdft: RunHvdft) -> None:
    script = 'test "$PMI_RANK" = 0 || exec sleep 600; exec "$0" "$@"'
    program = ["mpiexec.hydra", "-n", "2", "sh", "-c", script, *AGENT, "true"]
    env = {**mpi_environment(), "HOROVOD_FT_START_TIMEOUT_SECONDS": "1"}
    ended = run_hvdft([], env=env, program=program)
    assert ended.code != 0
    assert "hvdft: rank 0 waited 1 s in MPI_Init for some of the agents of rank 1" in ended.err
