"""The command line: what it takes, and one clear line for what it does not."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Device

from hvd_ft import __version__, cli
from hvd_ft.errors import HvdFtError
from hvd_ft.installed import support
from hvd_ft.launcher import run as launcher
from hvd_ft.launcher.job import Job, ResolvedJob
from hvd_ft.system.commit import version_text
from hvd_ft.tools.check import self_check

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
def started(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Collects the jobs that would be started; each ends with exit code 7."""
    jobs: list[Job] = []

    def launch(resolved: ResolvedJob, display: object, page: object, outcome: object) -> int:
        jobs.append(resolved.job)
        return 7

    monkeypatch.setattr(launcher, "launch", launch)
    return jobs


def test_version(hvdft: Run) -> None:
    assert hvdft("--version") == (0, f"hvdft {version_text(__version__)}\n", "")


def test_every_command_has_help_with_an_example() -> None:
    _, *commands = cli.parser().every()
    assert len(commands) > 20
    for command in commands:
        # The example may be of a command below it, or start with another program.
        assert f"Example: {command.prog}" in " ".join(command.format_help().split()) or (
            command.prog in command.format_help().rpartition("Example: ")[2]
        ), command.prog


def test_flags_for_experts_are_shown_only_by_help_all(hvdft: Run) -> None:
    code, short, _ = hvdft("run", "--help")
    assert code == 0
    code, full, _ = hvdft("run", "--help-all")
    assert code == 0
    for flag in ("--autotune-warmup-samples", "--cycle-time-ms", "--topology", "--mpi-args"):
        assert flag in full
        assert flag not in short
    for group in ("the job:", "what it survives:", "checkpoints (", "observe it:", "placement and"):
        assert f"\n{group}" in short
    assert "--help-all" in short


def test_the_help_names_every_command(hvdft: Run) -> None:
    code, out, _ = hvdft("--help")
    assert code == 0
    for command in ("run", "agent", "build-horovod", "check", "report", "bench", "cluster"):
        assert f"\n    {command} " in out or f"\n    {command}\n" in out


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["fly"], "invalid choice: 'fly'"),
        (["runn"], "invalid choice: 'runn': is run meant?; see hvdft --help"),
        (["log", "shwo"], "'shwo': is show meant?; see hvdft log --help"),
        (["-np", "2", "true"], "give that first, as in hvdft run -np 4"),
        (["run", "true"], "-np is missing: give the number of ranks"),
        (["run", "-np", "0", "true"], "'0' is not a number of ranks"),
        (["run", "-np", "-1", "true"], "not a number of ranks"),
        (["run", "-np", "four", "true"], "'four' is not a number of ranks"),
        (["run", "-np", "2", "--fast", "true"], "unrecognized arguments: --fast"),
        (["run", "-np", "2", "--reprot", "r", "true"], "--reprot: is --report meant?"),
        (["run", "-np", "2", "--reprot=r", "true"], "--reprot=r: is --report meant?"),
        (["run", "-np", "2", "--gloo", "true"], "--gloo: hvd_ft always uses MPI between hosts"),
        (["run", "-np", "2", "--bind-to", "cores", "true"], "'cores': is core meant?"),
        (["report", "r", "--pictur", "p"], "--pictur p: is --picture meant?"),
        (["run", "-np", "2"], "no command given"),
        (["run", "-np", "2", "--"], "no command given"),
        (["run", "-np", "2", "./none"], "./none was not found"),
        (["run", "-np", "2", "python", "none.py"], "none.py was not found"),
        (["run", "-np", "2", "-H", "localhost:1,,n1:1", "true"], "'' is not a host name"),
        (["run", "-np", "2", "-H", "localhost:x", "true"], "'x' is not a number of slots"),
        (["run", "-np", "2", "-H", "localhost:1", "true"], "has 1 slots for 2 ranks"),
        (["run", "-np", "2", "--network-interface", "eth9", "true"], "--network-interface eth9 ("),
        (["run", "-np", "2", "--inject", "rank=2,step=1", "true"], "the job's ranks are 0 to 1"),
        (["run", "-np", "2", "--inject", "rank=0", "true"], "give one of step=N, op=N and point="),
        (["run", "-np", "2", "--report", "none/r", "true"], "cannot write none/r"),
        (["run", "-np", "2", "--picture", "none/p", "true"], "cannot write none/p"),
        (["run", "-np", "2", "--checkpoint-dir", "/dev/null", "true"], "written to /dev/null on "),
        (["run", "-np", "2", "--checkpoint-dir", "/dev/null/c", "true"], "/dev/null is not a dir"),
        (["run", "-np", "2", "--checkpoint-keep", "5", "true"], "keep belongs to --checkpoint-dir"),
        (
            ["run", "-np", "2", "--checkpoint-interval", "5s", "true"],
            "interval belongs to --checkpoint",
        ),
        (["run", "-np", "2", "--resume", "nosuchdir", "true"], "nosuchdir: there is no directory"),
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


@pytest.mark.parametrize("command", [["bench"], ["checkpoint"], ["cluster"], ["log"]])
def test_a_command_that_is_not_finished_shows_its_help(hvdft: Run, command: list[str]) -> None:
    code, out, err = hvdft(*command)
    assert (code, out) == (2, "")
    assert err.startswith(" ".join(["usage: hvdft", *command]))
    assert "\ncommands:\n" in err


def test_hvdft_alone_shows_its_help(hvdft: Run) -> None:
    code, out, err = hvdft()
    assert (code, err) == (0, "")
    assert out == hvdft("--help")[1]
    assert "Start here: hvdft run -np 4 python train.py" in out


def test_run_starts_the_job_as_told(hvdft: Run, started: list[Job]) -> None:
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

    def launch(resolved: ResolvedJob, display: object, page: object, outcome: object) -> int:
        job = resolved.job
        told.append(Path(job.machine_file).read_text() if job.machine_file else None)
        return 0

    monkeypatch.setattr(launcher, "launch", launch)
    monkeypatch.setattr("hvd_ft.launcher.job_flags.check_known", lambda hosts, environ: None)
    hvdft("run", "-np", "8", "-H", "n0:4,n1:2,n2:2", "true")
    hvdft("run", "-np", "2", "-H", "localhost:1,127.0.0.1:1", "true")
    assert told == ["n0:4\nn1:2\nn2:2\n", None]


def test_the_command_may_follow_two_dashes(hvdft: Run, started: list[Job]) -> None:
    hvdft("run", "-np", "1", "--", "train", "--", "x")
    assert started[0].command == ["train", "--", "x"]


def test_a_picture_needs_no_report_of_the_user(
    hvdft: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def launch(resolved: ResolvedJob, display: object, page: object, outcome: object) -> int:
        job = resolved.job
        assert job.report
        Path(job.report).write_text(json.dumps({"job": job.id}) + "\n")
        return 0

    monkeypatch.setattr(launcher, "launch", launch)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert hvdft("run", "-np", "1", "--picture", str(tmp_path / "p.png"), "true")[0] == 0
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    assert os.listdir(tmp_path) == ["p.png"]


@pytest.mark.parametrize(("code", "expected"), [(0, 74), (3, 3)])
def test_a_picture_that_cannot_be_written_is_said_by_the_code_if_the_job_went_well(
    hvdft: Run, monkeypatch: pytest.MonkeyPatch, device: Device, code: int, expected: int
) -> None:
    def launch(resolved: ResolvedJob, display: object, page: object, outcome: object) -> int:
        job = resolved.job
        assert job.report
        Path(job.report).write_text(json.dumps({"job": job.id}) + "\n")
        return code

    monkeypatch.setattr(launcher, "launch", launch)
    full = device("full")
    refused = f"hvdft: the picture {full} could not be written (No space left on device)"
    got, _, err = hvdft("run", "-np", "1", "--picture", full, "true")
    assert got == expected
    assert err.startswith(refused)
    assert err.count("\n") == 1


@pytest.mark.parametrize(("code", "expected"), [(0, 74), (3, 3)])
def test_no_picture_is_drawn_of_another_jobs_report(
    hvdft: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int, expected: int
) -> None:
    old, picture = tmp_path / "r.jsonl", tmp_path / "p.png"
    old.write_text('{"job": "old"}\n')
    monkeypatch.setattr(launcher, "launch", lambda job, display, page, outcome: code)
    got, _, err = hvdft(
        *("run", "-np", "1", "--report", str(old), "--picture", str(picture), "true")
    )
    assert got == expected
    assert not picture.exists()
    # A job that has failed before there was a report has said why.
    assert ("there is no picture" in err) == (code == 0)


def test_no_picture_can_be_drawn_of_a_report_that_nobody_can_read(
    hvdft: Run, started: list[Job], device: Device
) -> None:
    null = device("null")
    flags = ["--report", null, "--picture", "p.png"]
    code, _, err = hvdft("run", "-np", "1", *flags, "true")
    assert code == 2
    assert f"--picture is drawn from the report, and {null} is not a file" in err
    flags = ["-H", "elsewhere:1", "--picture", "p.png"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hvd_ft.launcher.job_flags.check_known", lambda hosts, environ: None)
        code, _, err = hvdft("run", "-np", "1", *flags, "true")
    assert code == 2
    assert "--picture is drawn from the report, which rank 0 writes on elsewhere" in err
    assert started == []


def test_ops_are_not_traced_without_a_report(hvdft: Run, started: list[Job]) -> None:
    code, _, err = hvdft("run", "-np", "1", "--trace-ops", "--picture", "p.png", "true")
    assert (code, started) == (2, [])
    assert err == (
        "hvdft: --trace-ops writes into the report, and there is none; give --report FILE\n"
    )


def test_unknown_hosts_are_named_before_anything_is_started(hvdft: Run, started: list[Job]) -> None:
    code, _, err = hvdft("run", "-np", "2", "-H", "no-such-host.invalid:2", "true")
    assert (code, started) == (2, [])
    assert err.startswith("hvdft: -H names the host no-such-host.invalid, not known here (")
    assert err.count("\n") == 1


def test_report_says_what_it_is_of_and_that_it_is_unfinished(hvdft: Run, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    start = {"job": "j7", "size": 3, "date": "2025-01-02T03:04:05+00:00"}
    start |= {"command": ["python", "my train.py"], "hosts": ["n0", "n0", "n1"]}
    path.write_text(json.dumps(start) + "\n")
    which = "job j7, 3 ranks on n0:2,n1:1, begun 2025-01-02T03:04:05+00:00, python 'my train.py'"
    code, out, _ = hvdft("report", str(path))
    assert code == 0
    head, second, *_ = out.splitlines()
    assert head.startswith("UNFINISHED")
    assert second == which
    path.write_text(path.read_text() + '{"exit_code": 5}\n')
    code, out, _ = hvdft("report", str(path))
    assert out.splitlines()[:2] == ["ended with code 5: 0 steps, 0 failures", which]


def test_reports_picture_that_cannot_be_written(hvdft: Run, tmp_path: Path, device: Device) -> None:
    full = device("full")
    path = tmp_path / "r.jsonl"
    path.write_text('{"job": "j1"}\n')
    code, _, err = hvdft("report", str(path), "--picture", full)
    assert code == 74
    assert err.startswith(f"hvdft: {full} could not be written (No space left on device)")


def test_the_agent_gets_its_flags_untouched(hvdft: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def agent(given: list[str]) -> int:
        seen.append(given)
        return 5

    monkeypatch.setattr("hvd_ft.agent.main.main", agent)
    assert hvdft("agent", "--report", "r", "--", "true")[0] == 5
    assert seen == [["--report", "r", "--", "true"]]


def test_ctrl_c_is_no_traceback(hvdft: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(say: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hvd_ft.tools.check.self_check.check_installation", interrupted)
    assert hvdft("check")[::2] == (130, "")


def test_check_ends_in_a_verdict(hvdft: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> str:
        raise HvdFtError("Intel MPI was not found; run: pip install impi-rt")

    def ranks_fail() -> str:
        raise HvdFtError("two ranks could not do an allreduce")

    monkeypatch.setattr(self_check, "CHECKS", {"Intel MPI": lambda: "2021"})
    monkeypatch.setattr(support, "present", lambda: None)
    for name in ("load_mpi_library", "load_horovod", "run_two_ranks"):
        monkeypatch.setattr(self_check, name, lambda: "well")
    code, out, err = hvdft("check")
    assert (code, err) == (0, "")
    host, network, first, *_ = out.splitlines()
    assert (host[:6], network[:9], first) == ("host: ", "network: ", "Intel MPI: 2021")
    assert out.splitlines()[-2:] == ["two ranks: well", "everything is there"]

    monkeypatch.setattr(self_check, "run_two_ranks", ranks_fail)
    code, out, err = hvdft("check")
    assert (code, err) == (2, "hvdft: two ranks could not do an allreduce\n")
    assert "everything is there" not in out

    # What else is wrong is said as well, but nothing is started then.
    monkeypatch.setattr(self_check, "CHECKS", {"Intel MPI": absent, "TensorFlow": lambda: "2.15.1"})
    code, out, err = hvdft("check")
    assert (code, out.splitlines()[2:]) == (2, ["TensorFlow: 2.15.1"])
    assert err == "hvdft: Intel MPI was not found; run: pip install impi-rt\n"


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--min-np", "1"], "all ranks are on this one; give -H or --host-discovery-script"),
        (["--host-discovery-script", "true", "-H", "localhost:2"], "both name the hosts"),
        (["--max-np", "4"], "--max-np is for jobs that change their number of ranks"),
        (["--elastic-timeout", "4"], "--elastic-timeout is for jobs that change"),
        (
            ["--slots-per-host", "4", "--min-np", "1", "-H", "localhost:2"],
            "--slots-per-host belongs to",
        ),
        (["--min-np", "1", "-H", "localhost:2"], "give --checkpoint-dir, which all hosts share"),
        (
            ["--min-np", "3", "-H", "localhost:2", "--checkpoint-dir", "c"],
            "--min-np 3 is more than -np 2",
        ),
        (
            ["--min-np", "1", "-H", "localhost:2", "--checkpoint-dir", "c", "--picture", "p.png"],
            "each part of the job has a report of its own",
        ),
    ],
)
def test_flags_of_resizing_that_do_not_go_together(
    hvdft: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], part: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = hvdft("run", "-np", "2", *flags, "python", "train.py")
    assert code == 2
    assert part in err and len(err.splitlines()) == 1


def test_the_fence_is_checked_where_lost_hosts_are_done_without(
    hvdft: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROVOD_FT_FENCE_SECONDS", "1")
    flags = ["--min-np", "1", "-H", "localhost:2", "--checkpoint-dir", str(tmp_path)]
    code, _, err = hvdft("run", "-np", "2", *flags, "python", "train.py")
    assert code == 2
    assert "HOROVOD_FT_FENCE_SECONDS is 1: hosts are asked once a second" in err


def test_a_shell_completes_commands_and_flags(hvdft: Run) -> None:
    code, script, _ = hvdft("completion", "bash")
    assert code == 0
    script += """
        COMP_WORDS=(hvdft run --checkpoint-i); COMP_CWORD=2
        $(complete -p hvdft | sed 's/.*-F \\([^ ]*\\).*/\\1/')
        echo "$COMPREPLY"
        """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "--checkpoint-interval\n"
    assert hvdft("completion", "zsh")[1].startswith("#compdef hvdft\n")
