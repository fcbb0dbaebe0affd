"""Every flag of horovodrun is taken or refused as docs/from-horovod.md says."""

import argparse
import re
import sys
from collections.abc import Iterator

import pytest
from conftest import ROOT

from hvd_ft import cli
from hvd_ft.job.settings import Settings
from hvd_ft.launcher.horovodrun_flags import LOG_LEVELS, REFUSED, horovodrun_environment
from hvd_ft.launcher.job import Job, mpirun_command
from hvd_ft.launcher.job_flags import job_of, placed
from hvd_ft.mpi.environment import mpi_environment
from hvd_ft.system.command_line import Parser

TAKEN, WITHOUT_EFFECT, NOT_TAKEN = "taken", "no effect", "refused"


def run_parser() -> Parser:
    [commands] = cli.parser()._subparsers._group_actions  # type: ignore[union-attr]
    found = commands.choices["run"]  # type: ignore[index,call-overload]
    assert isinstance(found, Parser)
    return found


@pytest.fixture(scope="module")
def theirs() -> dict[str, argparse.Action]:
    """The flags of horovodrun's own parser."""
    launch = pytest.importorskip("horovod.runner.launch")
    parsers: list[argparse.ArgumentParser] = []

    def stop(parser: argparse.ArgumentParser, *_: object) -> None:
        parsers.append(parser)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["horovodrun"])
        patch.setattr(argparse.ArgumentParser, "parse_args", stop)
        with pytest.raises(KeyboardInterrupt):
            launch.parse_args()
    return {flag: found for flag, found in parsers[0]._option_string_actions.items()
            if flag not in ("-h", "--help")}  # fmt: skip


def table() -> dict[str, str]:
    """Returns what docs/from-horovod.md says of each flag."""
    text = (ROOT / "docs" / "from-horovod.md").read_text()
    section = text.partition("## Flags of horovodrun\n")[2].partition("\n## ")[0]
    return {
        flag: cells[1].strip()
        for line in section.splitlines()
        if (cells := line.strip("|").split("|")) and len(cells) == 3
        for flag in re.findall(r"`(--?[A-Za-z][a-z-]*)`", cells[0])
    }


def words(action: argparse.Action, flag: str) -> list[str]:
    """Returns words of a command line that give a flag, as horovodrun takes it."""
    if action.nargs == 0:
        return [flag]
    if action.choices:
        return [flag, str(next(iter(action.choices)))]
    if action.nargs == 2:
        return [flag, "10", "20"]
    return [flag, "1"]


def test_the_table_has_every_flag_of_horovodrun(theirs: dict[str, argparse.Action]) -> None:
    assert {"-np", "--gloo", "--start-timeout", "-prefix-timestamp"} <= set(theirs)
    assert set(table()) == set(theirs)
    assert set(table().values()) == {TAKEN, WITHOUT_EFFECT, NOT_TAKEN}


def test_what_the_table_says_is_so(theirs: dict[str, argparse.Action]) -> None:
    run, told = run_parser(), table()
    for flag, action in theirs.items():
        if told[flag] == NOT_TAKEN:
            assert flag in REFUSED
            assert flag not in run._option_string_actions
        elif flag in ("-v", "--version", "-cb", "--check-build", "--config-file"):
            assert flag in run._option_string_actions  # it would end the process, or read a file
        else:
            options = run.parse_args([*words(action, flag), "true"])
            assert options.command == ["true"], flag
            noted = any(line.startswith(f"{flag} ") for line in options.without_effect)
            assert noted == (told[flag] == WITHOUT_EFFECT), flag
    assert set(REFUSED) == {flag for flag, what in told.items() if what == NOT_TAKEN}


@pytest.mark.parametrize("flag", sorted(REFUSED))
def test_the_reason_is_in_the_error(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run_parser().parse_args([flag, "true"])
    said = capsys.readouterr().err
    assert said == f"hvdft: unrecognized arguments: {flag}: {REFUSED[flag]}; see hvdft run --help\n"


def test_variables_are_those_that_horovodrun_sets(theirs: dict[str, argparse.Action]) -> None:
    """Each flag that both translate into a variable of Horovod has the same one."""
    config_parser = pytest.importorskip("horovod.runner.common.util.config_parser")
    assert tuple(config_parser.LOG_LEVELS) == LOG_LEVELS
    flags = {
        "--fusion-threshold-mb": "3", "--timeline-filename": "t.json", "--log-level": "INFO",
        "--stall-check-warning-time-seconds": "7", "--stall-check-shutdown-time-seconds": "9",
    }  # fmt: skip
    switches = ["--timeline-mark-cycles", "--no-stall-check", "--log-without-timestamp"]
    given = [word for pair in flags.items() for word in pair] + switches
    empty = argparse.Namespace(**{action.dest: None for action in theirs.values()})
    for flag, value in flags.items():
        kind = theirs[flag].type or str
        setattr(empty, theirs[flag].dest, kind(value))  # type: ignore[operator]
    for flag in switches:
        setattr(empty, theirs[flag].dest, theirs[flag].const)
    expected: dict[str, str] = {}
    config_parser.set_env_from_args(expected, empty)
    assert horovodrun_environment(run_parser().parse_args([*given, "true"])) == expected


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Gives a function that returns the job of some flags."""
    monkeypatch.delenv("HOROVOD_FT_OUTPUT_PREFIX")

    def described(*flags: str) -> Job:
        options = run_parser().parse_args(["-np", "2", *flags, "true"])
        place = placed(options, resizes=False)
        return job_of(options, place, None, report=None, machine_file=None)

    yield described


@pytest.mark.parametrize(
    ("flags", "prefix"),
    [([], "rank"), (["--no-prefix"], "none"), (["--prefix-output-with-timestamp"], "time")],
)
def test_marks_before_lines(job, flags: list[str], prefix: str) -> None:  # type: ignore[no-untyped-def]
    assert Settings.from_env(job(*flags).given).output_prefix == prefix
    assert Settings().output_prefix == "none"  # under horovodrun, which marks lines itself


def test_flags_of_ssh_and_mpirun(job) -> None:  # type: ignore[no-untyped-def]
    found = job("-p", "2222", "-i", "/a key", "--mpi-args", "-genv A 'b c'", "--start-timeout", "9")
    assert found.given["I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS"] == "-p 2222 -i '/a key'"
    assert found.given["HOROVOD_FT_START_TIMEOUT_SECONDS"] == "9.0"
    command = mpirun_command(found, mpi_environment())
    assert command[1:6] == ["-np", "2", "-genv", "A", "b c"]
