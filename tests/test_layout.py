"""The rules of the layout: who may use what (ARCHITECTURE.md), and what has to be there."""

import ast
import functools
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hvd_ft import abi

ROOT = Path(__file__).resolve().parents[1]
PYTHON = sorted((ROOT / "hvd_ft").rglob("*.py"))
CPP = sorted(path for path in (ROOT / "hvd_ft").rglob("*") if path.suffix in (".cc", ".h"))
TOP = "hvd_ft patches scripts experiments tests docs setup.py CMakeLists.txt Makefile README.md \
    ARCHITECTURE.md CHANGELOG.md requirements.txt .ci/run"


@functools.cache
def imports(path: Path) -> set[str]:
    """Returns the modules that a file imports, a `from` import with each of its names too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            found |= {f"{node.module}", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def importers(module: str) -> list[str]:
    """Returns the files of the package that import a module or something of it."""
    return [
        str(path.relative_to(ROOT))
        for path in PYTHON
        if any(name == module or name.startswith(f"{module}.") for name in imports(path))
    ]


def tracked() -> list[Path]:
    """Returns the text files of the checkout that git does not ignore."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
    )
    if listing.returncode:
        pytest.skip("not a git checkout")
    files = [ROOT / name for name in listing.stdout.split("\0") if name]
    return [path for path in files if path.is_file() and b"\0" not in path.read_bytes()]


def test_few_files_use_ctypes() -> None:
    # The ring's library needs MPI, so it is loaded apart from the one that workers load.
    assert importers("ctypes") == [
        "hvd_ft/abi.py",
        "hvd_ft/native.py",
        "hvd_ft/native_logs.py",  # the same library: messages, which want numpy
        "hvd_ft/ring/native.py",
    ]


@pytest.mark.parametrize("module", ["tensorflow", "keras", "horovod"])
def test_only_the_tensorflow_folder_imports_tensorflow(module: str) -> None:
    outside = [name for name in importers(module) if not name.startswith("hvd_ft/tensorflow/")]
    assert outside == []


def test_nothing_imports_the_command_line() -> None:
    assert importers("hvd_ft.cli") == []


def test_nothing_unpickles_or_evaluates() -> None:
    assert importers("pickle") + importers("marshal") + importers("shelve") == []
    for path in PYTHON:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec"), f"{path}:{node.lineno}"


def test_at_most_one_cpp_file_includes_mpi() -> None:
    including = [path.name for path in CPP if re.search(r"#include\s*[<\"]mpi", path.read_text())]
    assert len(including) <= 1


def test_the_library_needs_no_mpi() -> None:
    if shutil.which("readelf") is None:
        pytest.skip("readelf (binutils) is not there")
    table = subprocess.run(
        ["readelf", "-dWs", "--dyn-syms", abi.library_path()],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    assert "hvdft_version" in table
    assert not re.search(r"\bMPIX?_|libmpi", table)


def test_the_core_knows_no_python() -> None:
    assert [path for path in CPP if "Python.h" in path.read_text()] == []


def test_what_has_to_be_there_is_there() -> None:
    assert [name for name in TOP.split() if not (ROOT / name).exists()] == []


def test_every_experiment_says_what_it_asks() -> None:
    within = (path for path in (ROOT / "experiments").iterdir() if path.is_dir())
    folders = [path for path in within if path.name != "__pycache__"]  # Python's own, of a run
    assert [str(path) for path in folders if not (path / "README.md").is_file()] == []


def test_files_stay_short() -> None:
    long = [
        f"{path.relative_to(ROOT)}: {lines} lines"
        for path in PYTHON + CPP
        if (lines := len(path.read_text().splitlines())) > 500
    ]
    assert long == []


def test_no_path_or_address_of_a_machine() -> None:
    pattern = re.compile(
        r"/(?:home|root|Users|work)/[\w.]|/tmp/[w]\b|/opt/py[p]i|https?:\S+/[s]imple\b"
    )
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in tracked()
        if (match := pattern.search(path.read_text(errors="replace")))
    ]
    assert found == []


def test_every_place_names_the_same_intel_mpi() -> None:
    files = ("setup.py", "pyproject.toml", "requirements.txt")
    pattern = re.compile(r'(?:impi-(?:rt|devel)==|MPI_VERSION = ")([\d.]+)')
    found = {name: set(pattern.findall((ROOT / name).read_text())) for name in files}
    assert len(set.union(*found.values())) == 1, found
    assert all(found.values()), found
