"""`make setup`: which environment it makes, and of which packages."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import setup_environment


def set_up(*arguments: str, tensorflow: str = "", python: str = sys.executable) -> tuple[str, str]:
    """Runs the script as make does; returns what it prints, and its error."""
    script = str(ROOT / "scripts" / "setup_environment.py")
    env = {**os.environ, "TENSORFLOW": tensorflow}
    done = subprocess.run(
        [python, script, *arguments], env=env, check=False, capture_output=True, text=True
    )
    return done.stdout.strip(), done.stderr.strip()


def another_python(version: str) -> str:
    """Returns the program of another Python; skips where it is missing."""
    python = shutil.which(f"python{version}")
    if shutil.which("pyenv"):  # what stands in PATH then may only say that it is not chosen
        found = subprocess.run(["pyenv", "root"], check=True, capture_output=True, text=True)
        programs = Path(found.stdout.strip()).glob(f"versions/{version}.*/bin/python{version}")
        python = next(map(str, programs), None)
    if python is None:
        pytest.skip(f"Python {version} is not installed")
    return python


def test_each_combination_has_an_environment_of_its_own() -> None:
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    default = ".venv" if here == "3.11" else f".venv-2.21-{here}"
    assert set_up("--folder") == (default, "")
    assert set_up("--folder", tensorflow="2.21") == (f".venv-2.21-{here}", "")


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_a_newer_python_has_the_newer_tensorflow(version: str) -> None:
    python = another_python(version)
    assert set_up("--folder", python=python) == (f".venv-2.21-{version}", "")
    out, error = set_up(tensorflow="2.15", python=python)
    assert (out, error.count("\n")) == ("", 0)
    assert "needs 3.11; run: make setup PYTHON=python3.11" in error


def test_another_tensorflow_is_refused() -> None:
    out, error = set_up(tensorflow="2.18")
    assert (out, error.count("\n")) == ("", 0)
    assert "TENSORFLOW=2.18 is not supported; give 2.15 or 2.21" in error


def test_pins_of_todays_tensorflow_replace_those_of_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TENSORFLOW", "2.15")
    default = setup_environment.pinned()
    monkeypatch.setenv("TENSORFLOW", "2.21")
    todays = setup_environment.pinned()
    assert default["tensorflow-cpu"] == "tensorflow-cpu==2.15.1"
    assert todays["tensorflow-cpu"] == "tensorflow-cpu==2.21.0"
    assert todays.keys() - default.keys() == {"keras", "tf_keras", "tensorboard", "h5py"}
    same = default.keys() - {"tensorflow-cpu", "numpy"}
    assert {name: default[name] for name in same} == {name: todays[name] for name in same}
