"""Somebody who comes from horovodrun is told what to do instead of each flag that is not here."""

import importlib.util
import re
from pathlib import Path

import pytest

from hvd_ft import cli
from hvd_ft.launcher.horovodrun_flags import INSTEAD
from hvd_ft.system.command_line import Parser


def run_parser() -> Parser:
    [commands] = cli.parser()._subparsers._group_actions  # type: ignore[union-attr]
    found = commands.choices["run"]  # type: ignore[index,call-overload]
    assert isinstance(found, Parser)
    return found


def flags_of_horovodrun() -> set[str]:
    spec = importlib.util.find_spec("horovod")
    assert spec and spec.origin
    source = Path(spec.origin).parent / "runner" / "launch.py"
    return set(re.findall(r"'(--?[a-z][a-z-]*)'", source.read_text()))


def test_every_flag_of_horovodrun_is_known_or_has_an_answer() -> None:
    here = set(run_parser()._option_string_actions)
    theirs = flags_of_horovodrun()
    assert {"-np", "--gloo", "--start-timeout"} <= theirs
    # -m is Python's; of -hostfile argparse sees the -h.
    assert theirs - here - set(INSTEAD) == {"-m", "-hostfile"}
    assert not set(INSTEAD) & here
    assert set(INSTEAD) <= theirs | {"-v"}


@pytest.mark.parametrize("flag", sorted(INSTEAD))
def test_the_answer_is_in_the_error(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run_parser().parse_args([flag, "true"])
    said = capsys.readouterr().err
    assert said == f"hvdft: unrecognized arguments: {flag}: {INSTEAD[flag]}; see hvdft run --help\n"
