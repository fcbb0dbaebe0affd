"""The command line: what it takes, and one clear line for what it does not."""

import io
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from hvd_ft import __version__, cli, launcher, live
from hvd_ft.errors import HvdFtError
from hvd_ft.facts import State, Status

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def hvdft(capsys: pytest.CaptureFixture[str]) -> Run:
    """Gives a function that runs a command line: exit code, stdout, stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            code = cli.main(arguments)
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[launcher.Job]:
    """Collects the jobs that would be started; each ends with exit code 7."""
    jobs: list[launcher.Job] = []

    def launch(job: launcher.Job, display: object) -> int:
        jobs.append(job)
        return 7

    monkeypatch.setattr(launcher, "launch", launch)
    return jobs


def test_version(hvdft: Run) -> None:
    assert hvdft("--version") == (0, f"hvdft {__version__}\n", "")


@pytest.mark.parametrize("command", ["run", "build-horovod", "check", "report", "bench", "cluster"])
def test_every_command_has_help_with_an_example(hvdft: Run, command: str) -> None:
    code, out, _ = hvdft(command, "--help")
    assert code == 0
    assert f"Example: hvdft {command}" in out


def test_the_help_names_every_command(hvdft: Run) -> None:
    code, out, _ = hvdft("--help")
    assert code == 0
    for command in ("run", "agent", "build-horovod", "check", "report", "bench", "cluster"):
        assert f"\n    {command} " in out or f"\n    {command}\n" in out


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "required: COMMAND"),
        (["fly"], "invalid choice: 'fly'"),
        (["run", "true"], "required: -np/--num-proc"),
        (["run", "-np", "0", "true"], "'0' is not a number of ranks"),
        (["run", "-np", "-1", "true"], "not a number of ranks"),
        (["run", "-np", "four", "true"], "'four' is not a number of ranks"),
        (["run", "-np", "2", "--fast", "true"], "unrecognized arguments: --fast"),
        (["run", "-np", "2"], "no command given"),
        (["run", "-np", "2", "--"], "no command given"),
        (["run", "-np", "2", "./none"], "./none is not there"),
        (["run", "-np", "2", "python", "none.py"], "none.py is not there"),
        (["run", "-np", "2", "-H", "localhost:1,,n1:1", "true"], "'' is no name of a host"),
        (["run", "-np", "2", "-H", "localhost:x", "true"], "'x' is no number of slots"),
        (["run", "-np", "2", "-H", "localhost:1", "true"], "has 1 slots for 2 ranks"),
        (["run", "-np", "2", "--inject", "rank=2,step=1", "true"], "the job's ranks are 0 to 1"),
        (["run", "-np", "2", "--inject", "rank=0", "true"], "give one of step=N, op=N and point="),
        (["run", "-np", "2", "--report", "none/r", "true"], "cannot write none/r"),
        (["run", "-np", "2", "--picture", "none/p", "true"], "cannot write none/p"),
        (["report"], "required: FILE"),
        (["report", "none.jsonl"], "cannot read report none.jsonl"),
        (["check", "more"], "unrecognized arguments: more"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    hvdft: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], part: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = hvdft(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("hvdft: ")
    assert err.count("\n") == 1
    assert part in err


def test_run_starts_the_job_as_told(hvdft: Run, started: list[launcher.Job]) -> None:
    code, _, _ = hvdft(
        *("run", "-np", "4", "-H", "localhost:4", "--on-failure", "a", "--on-restart", "b"),
        *("--inject", "rank=3,step=1", "--inject", "rank=0,op=5"),
        *("--report", "r", "--no-live", "python", "train.py", "-np", "9", "--report", "x"),
    )
    assert code == 7
    [job] = started
    assert (job.size, job.on_failure, job.on_restart, job.report) == (4, "a", "b", "r")
    assert job.inject == ["rank=3,step=1", "rank=0,op=5"]
    assert job.command == ["python", "train.py", "-np", "9", "--report", "x"]


def test_other_hosts_come_in_a_machine_file(hvdft: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str | None] = []

    def launch(job: launcher.Job, display: object) -> int:
        told.append(Path(job.machine_file).read_text() if job.machine_file else None)
        return 0

    monkeypatch.setattr(launcher, "launch", launch)
    hvdft("run", "-np", "8", "-H", "n0:4,n1:2,n2:2", "true")
    hvdft("run", "-np", "2", "-H", "localhost:1,127.0.0.1:1", "true")
    assert told == ["n0:4\nn1:2\nn2:2\n", None]


def test_the_command_may_follow_two_dashes(hvdft: Run, started: list[launcher.Job]) -> None:
    hvdft("run", "-np", "1", "--", "train", "--", "x")
    assert started[0].command == ["train", "--", "x"]


def test_a_picture_needs_no_report_of_the_user(
    hvdft: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def launch(job: launcher.Job, display: object) -> int:
        assert job.report
        Path(job.report).write_text(json.dumps({"job": job.id}) + "\n")
        return 0

    monkeypatch.setattr(launcher, "launch", launch)
    assert hvdft("run", "-np", "1", "--picture", str(tmp_path / "p.png"), "true")[0] == 0
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_the_agent_gets_its_flags_untouched(hvdft: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def agent(given: list[str]) -> int:
        seen.append(given)
        return 5

    monkeypatch.setattr("hvd_ft.agent.main", agent)
    assert hvdft("agent", "--report", "r", "--", "true")[0] == 5
    assert seen == [["--report", "r", "--", "true"]]


def test_ctrl_c_is_no_traceback(hvdft: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hvd_ft.environment.check_environment", interrupted)
    assert hvdft("check") == (130, "", "")


def test_check_prints_what_is_there_or_the_reason(
    hvdft: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hvd_ft.environment.check_environment", lambda: {"Intel MPI": "2021"})
    assert hvdft("check") == (0, "Intel MPI: 2021\n", "")

    def absent() -> None:
        raise HvdFtError("Intel MPI is not there; run: pip install impi-rt")

    monkeypatch.setattr("hvd_ft.environment.check_environment", absent)
    assert hvdft("check") == (2, "", "hvdft: Intel MPI is not there; run: pip install impi-rt\n")


class TwoRanks:
    """A job in which rank 1 is on its way back."""

    size = 2
    ranks = (
        Status(State.WAITING, 0, 11, 40, 90, time.monotonic_ns()),
        Status(State.REPLAYING, 1, 12, 38, 88, time.monotonic_ns()),
    )

    def status(self, rank: int) -> Status:
        return self.ranks[rank]


def test_live_lines_and_the_output_above_them() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with live.display(console, live=True) as shown:
        shown.update(TwoRanks())
        shown.output("\x1b[31mloss 0.5\x1b[0m [not markup]")
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "loss 0.5" in text
    assert "[not markup]" in text
    for part in ("rank 0", "waiting", "step 40", "rank 1", "replaying", "restarted once"):
        assert part in text


def test_plain_lines_come_only_with_a_change() -> None:
    console = Console(file=io.StringIO(), width=80)
    with live.display(console, live=False) as shown:
        shown.update(TwoRanks())
        shown.update(TwoRanks())
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines() == [
        "hvdft: rank 0 (incarnation 0) is waiting at step 40",
        "hvdft: rank 1 (incarnation 1) is replaying at step 38",
    ]
