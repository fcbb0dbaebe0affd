"""Every `hvdft` command line that a page shows is one that hvdft takes.

They are parsed, not run: most would start jobs on hosts that are not here. What the parser takes is
tried by the tests of each command.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT

from hvd_ft import cli

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if path.parent.name != "reference"),
    *sorted((ROOT / "experiments").rglob("README.md")),
]
_BLOCK = re.compile(r"^```(?:sh|bash|console)?\n(.*?)^```", re.MULTILINE | re.DOTALL)
_BEGINS = re.compile(r"^\s*(?:\$ |[A-Z_]+=\S+ )*(?:\.venv/bin/)?hvdft (?!.*\.\.\.)(.*)$")
# What a reader fills in.
_FILLED_IN = {"N": "4", "JOB": "abc", "PORT": "8080"}


def commands(page: Path) -> Iterator[str]:
    """Yields the command lines in the blocks of a page, each without its comment."""
    for block in _BLOCK.findall(page.read_text()):
        for line in block.replace("\\\n", " ").splitlines():
            if found := _BEGINS.match(line):
                yield re.split(r"\s+#|\s+[<>|&;]|\s{3,}", found[1])[0].strip()


def problem(command: str) -> str:
    """Returns why hvdft would not take a command line; "" if it does."""
    words = [_FILLED_IN.get(word, word) for word in shlex.split(command)]
    try:
        if words[:1] == ["agent"]:
            return ""  # parses its flags itself
        cli.parser().parse_args(words)
    except SystemExit as stop:
        return "" if stop.code == 0 else "see above"
    except Exception as error:
        return str(error)
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_that_a_page_shows_is_one(page: Path) -> None:
    wrong = [command for command in commands(page) if problem(command)]
    assert not wrong


def test_there_are_such_commands_and_wrong_ones_are_found() -> None:
    found = [command for page in PAGES for command in commands(page)]
    assert len(found) > 40
    assert problem("run -np 4 --spare-host n1:4 python train.py")
    assert problem("stauts")
