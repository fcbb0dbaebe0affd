"""Which training commands a spare can run, and what it may import for them beforehand."""

import sys
from pathlib import Path

import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.job.python_command import PythonCommand
from hvd_ft.spares.preload import imported_modules, installed


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train.py"], PythonCommand("train.py", False, [])),
        (["-u", "a/train.py", "-m", "x"], PythonCommand("a/train.py", False, ["-m", "x"])),
        (["-m", "pkg.train", "--lr", "1"], PythonCommand("pkg.train", True, ["--lr", "1"])),
        (["-u", "-m", "pkg"], PythonCommand("pkg", True, [])),
    ],
)
def test_scripts_and_modules_of_this_python(words: list[str], expected: PythonCommand) -> None:
    assert PythonCommand.parse([sys.executable, *words]) == expected


@pytest.mark.parametrize(
    "command",
    [
        ["/bin/sh", "train.sh"],
        ["no-such-program"],
        [sys.executable],
        [sys.executable, "-c", "pass"],
        [sys.executable, "-O", "train.py"],
        [sys.executable, "-m"],
        [sys.executable, "-"],
        [sys.executable, "/"],
    ],
)
def test_everything_else_is_refused_in_one_line(command: list[str]) -> None:
    with pytest.raises(HvdFtError, match="--spares needs the command python") as refused:
        PythonCommand.parse(command)
    assert "\n" not in str(refused.value)


def test_where_python_finds_it(tmp_path: Path) -> None:
    cwd = str(tmp_path)
    (tmp_path / "real").mkdir()
    script = tmp_path / "real" / "train.py"
    script.write_text("")
    (tmp_path / "link.py").symlink_to(script)
    linked = PythonCommand("link.py", False, [])
    assert linked.import_directory(cwd) == str(script.parent.resolve())
    assert linked.source(cwd) == tmp_path / "link.py"
    module = PythonCommand("real.train", True, [])
    assert module.import_directory(cwd) == cwd
    assert module.source(cwd) == script
    (tmp_path / "real" / "__main__.py").write_text("")
    package = PythonCommand("real", True, [])
    assert package.source(cwd) == tmp_path / "real" / "__main__.py"
    assert PythonCommand("json.tool", True, []).source(cwd) is None


def test_only_installed_packages_are_imported_beforehand(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os, numpy as np\nimport psutil, mine, nowhere\nfrom rich.table import Table\n"
        "from . import x\ndef later():\n    import sklearn\n"
    )
    (tmp_path / "mine.py").write_text("import mine, matplotlib.figure")
    (tmp_path / "psutil.py").write_text("")  # the script's own, whatever is installed
    found = imported_modules(script, str(tmp_path))
    theirs = ["os", "numpy", "psutil", "mine", "nowhere", "rich.table"]
    assert found == [*theirs, "matplotlib.figure"]
    assert installed(found, str(tmp_path)) == ["numpy", "rich.table", "matplotlib.figure"]


def test_a_script_that_is_none_has_no_imports(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import (")
    assert imported_modules(script, str(tmp_path)) == []
