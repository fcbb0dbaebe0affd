"""What is checked before a job starts, each check against an environment made up for it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import _cffi_backend
import pytest
from conftest import ROOT

from hvd_ft.mpi.environment import mpi_environment


class Environment:
    """A directory that stands for a Python environment: bin/ and site-packages."""

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        self.site = prefix / "site-packages"
        self.variables: dict[str, str] = {}
        self.site.mkdir(parents=True)
        cffi = Path(_cffi_backend.__file__)  # what the core is called with is there
        (self.site / cffi.name).symlink_to(cffi)

    def install(self, name: str, version: str) -> None:
        """Makes what importlib.metadata sees of an installed distribution."""
        info = self.site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "RECORD").write_text(f"{info.name}/METADATA,,\n")

    def install_mpi(self, root: Path) -> None:
        """Puts an executable in the place of mpirun's program."""
        program = root / "bin" / "mpiexec.hydra"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o700)

    def mark_horovod(self, text: str) -> None:
        """Writes the file that hvd_ft's build puts into Horovod."""
        marker = self.site / "horovod" / "common" / "ft" / "BUILD.json"
        marker.parent.mkdir(parents=True)
        marker.write_text(text)

    def key(self, *frameworks: str) -> str:
        """Returns the key of a Horovod for these frameworks."""
        return self.evaluate(f"horovod_source.build_key(frameworks.named({frameworks!r}))")

    def built_for(self, *frameworks: str) -> None:
        """Writes what the right build for these frameworks has."""
        mark = {"version": "0.28.1", "key": self.key(*frameworks), "frameworks": frameworks}
        self.mark_horovod(json.dumps(mark))

    def evaluate(self, expression: str) -> str:
        """Evaluates an expression in the environment; an HvdFtError gives its line."""
        code = (
            "import sys\n"
            f"sys.prefix = {str(self.prefix)!r}\n"
            "from hvd_ft import errors; from hvd_ft.installed import environment\n"
            "from hvd_ft.installed import frameworks, horovod_source\n"
            "from hvd_ft.mpi import environment as mpi_environment\n"
            "try:\n"
            f"    print({expression})\n"
            "except errors.HvdFtError as error:\n"
            "    print('error:', error)\n"
        )
        variables = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{ROOT}{os.pathsep}{self.site}",
            "PYTHONDONTWRITEBYTECODE": "1",
            **self.variables,
        }
        # -S: without the site-packages that the tests run in.
        command = [sys.executable, "-S", "-c", code]
        done = subprocess.run(command, env=variables, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def check(self) -> str:
        """Returns what the check of the whole environment finds, or its error."""
        return self.evaluate("environment.check_environment()")


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """An environment in which nothing is wrong but that Horovod is absent."""
    made = Environment(tmp_path / "venv")
    made.install("impi-rt", "2021.18.1")
    made.install_mpi(made.prefix)
    made.install("tensorflow-cpu", "2.15.1")
    return made


def expect_one_line(text: str, *parts: str) -> None:
    """Asserts that the text is one error line that has all parts."""
    assert text.startswith("error: ") and "\n" not in text
    assert [part for part in parts if part not in text] == []


def test_intel_mpi_absent(tmp_path: Path) -> None:
    found = Environment(tmp_path / "venv").check()
    expect_one_line(found, "Intel MPI was not found", "pip install impi-rt impi-devel")


def test_intel_mpi_elsewhere(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "venv")
    environment.install_mpi(tmp_path / "oneapi")
    environment.variables = {"I_MPI_ROOT": str(tmp_path / "oneapi")}
    assert environment.evaluate("mpi_environment.mpi_root()") == str(tmp_path / "oneapi")


def test_i_mpi_root_without_intel_mpi(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "venv")
    environment.variables = {"I_MPI_ROOT": str(tmp_path / "nothing")}
    expect_one_line(environment.check(), "Intel MPI was not found", "I_MPI_ROOT")


def test_no_framework(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "venv")
    environment.install("impi-rt", "2021.18.1")
    environment.install_mpi(environment.prefix)
    found = environment.check()
    expect_one_line(found, "neither TensorFlow nor PyTorch", "pip install tensorflow-cpu==2.15.1")
    assert "pip install torch==" in found


@pytest.mark.parametrize("name", ["tensorflow", "tensorflow-cpu"])
def test_tensorflow_of_another_version(tmp_path: Path, name: str) -> None:
    environment = Environment(tmp_path / "venv")
    environment.install("impi-rt", "2021.18.1")
    environment.install_mpi(environment.prefix)
    environment.install(name, "2.16.2")
    expect_one_line(environment.check(), "TensorFlow 2.16.2", "works with 2.15.1", "pip install")


def test_horovod_absent(environment: Environment) -> None:
    expect_one_line(environment.check(), "Horovod is not installed", "hvdft build-horovod")


def test_horovod_of_another_version(environment: Environment) -> None:
    environment.install("horovod", "0.27.0")
    expect_one_line(environment.check(), "Horovod 0.27.0", "0.28.1", "hvdft build-horovod")


def test_horovod_without_the_ft_backend(environment: Environment) -> None:
    environment.install("horovod", "0.28.1")
    expect_one_line(
        environment.check(),
        "Horovod 0.28.1 has no ft backend",
        "it was not built by hvd_ft",
        "hvdft build-horovod",
    )


def test_horovod_of_another_build(environment: Environment) -> None:
    environment.install("horovod", "0.28.1")
    mark = {"version": "0.28.1", "key": "0123", "frameworks": ["tensorflow"]}
    environment.mark_horovod(json.dumps(mark))
    expect_one_line(environment.check(), "another hvd_ft", "0123", "hvdft build-horovod")


def test_horovod_of_an_older_hvd_ft(environment: Environment) -> None:
    environment.install("horovod", "0.28.1")
    environment.mark_horovod(json.dumps({"version": "0.28.1", "key": "0123"}))
    expect_one_line(environment.check(), "another hvd_ft", "hvdft build-horovod")


def test_horovod_with_a_broken_marker(environment: Environment) -> None:
    environment.install("horovod", "0.28.1")
    environment.mark_horovod("{")
    expect_one_line(environment.check(), "BUILD.json cannot be read", "hvdft build-horovod")


def test_everything_is_there(environment: Environment) -> None:
    environment.install("horovod", "0.28.1")
    environment.built_for("tensorflow")
    found = environment.check()
    assert "'Intel MPI': '2021.18.1'" in found
    assert "'framework': 'TensorFlow 2.15.1'" in found
    assert "'Horovod': '0.28.1 for TensorFlow'" in found
    assert "libhvdft_mpi.so" in found


def test_pytorch_alone(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "venv")
    environment.install("impi-rt", "2021.18.1")
    environment.install_mpi(environment.prefix)
    environment.install("torch", "2.13.0+cpu")
    environment.install("horovod", "0.28.1")
    environment.built_for("torch")
    found = environment.check()
    assert "'framework': 'PyTorch 2.13.0+cpu'" in found
    assert "'Horovod': '0.28.1 for PyTorch'" in found


def test_both_frameworks(environment: Environment) -> None:
    environment.install("torch", "2.13.0")
    environment.install("horovod", "0.28.1")
    environment.built_for("tensorflow", "torch")
    found = environment.check()
    assert "'framework': 'TensorFlow 2.15.1, PyTorch 2.13.0'" in found
    assert "'Horovod': '0.28.1 for TensorFlow and PyTorch'" in found


def test_a_second_framework_that_horovod_was_not_built_for(environment: Environment) -> None:
    environment.install("horovod", "0.28.1")
    environment.built_for("tensorflow")
    environment.install("torch", "2.13.0")
    assert "'Horovod': '0.28.1 for TensorFlow'" in environment.check()
    assert environment.evaluate("horovod_source.build_key()") != environment.key("tensorflow")


@pytest.mark.parametrize("version", ["1.13.1", "2.0.1", "2.14.0+cu130", "3.0.0"])
def test_pytorch_does_not_fit(tmp_path: Path, version: str) -> None:
    environment = Environment(tmp_path / "venv")
    environment.install("impi-rt", "2021.18.1")
    environment.install_mpi(environment.prefix)
    environment.install("torch", version)
    said = environment.check()
    expect_one_line(said, f"PyTorch {version}", "2.1 to 2.13", "pip install torch==2.13.0")


def test_a_framework_that_there_is_not(environment: Environment) -> None:
    found = environment.evaluate("frameworks.named(['tensorflow', 'jax'])")
    expect_one_line(found, "there is no framework 'jax'", "tensorflow or torch")


def test_core_absent(environment: Environment) -> None:
    environment.variables = {"HOROVOD_FT_LIBRARY": str(environment.prefix / "no.so")}
    expect_one_line(environment.evaluate("environment.check_library()"), "no.so", "make core")


def test_cffi_absent(environment: Environment) -> None:
    for file in environment.site.glob("_cffi_backend*"):
        file.unlink()
    found = environment.evaluate("environment.check_library()")
    expect_one_line(found, "No module named '_cffi_backend'", "pip install .")


def test_the_library_over_mpi_absent(environment: Environment) -> None:
    gone = "setattr(environment.libraries, 'mpi_library_path', lambda: '/none/libhvdft_mpi.so')"
    found = environment.evaluate(f"[{gone}, environment.check_mpi_library()]")
    expect_one_line(found, "/none/libhvdft_mpi.so was not found", "pip install .", "make core")


def test_another_tensorflow_needs_another_horovod(environment: Environment) -> None:
    key = environment.evaluate("horovod_source.build_key()")
    environment.install("tensorflow", "2.15.0")
    assert environment.evaluate("horovod_source.build_key()") != key


@pytest.mark.parametrize(("version", "more"), [("2.15.1", 0), ("2.21.0", 1), ("2.21.1", 1)])
def test_the_defaults_build_has_no_patches_of_todays_tensorflow(
    tmp_path: Path, version: str, more: int
) -> None:
    environment = Environment(tmp_path / "venv")
    environment.install("tensorflow-cpu", version)
    release = f"horovod-{environment.evaluate('horovod_source.HOROVOD_VERSION')}"
    count = len(list((ROOT / "patches" / release).glob("*.patch")))
    assert environment.evaluate("len(horovod_source.patches())") == str(count + more)
    assert environment.evaluate("frameworks.TENSORFLOW.fits()") == "True"


def test_mpi_environment_finds_this_environment_first(environment: Environment) -> None:
    environment.variables = {"LD_LIBRARY_PATH": "/elsewhere"}
    prefix = environment.prefix
    assert environment.evaluate("mpi_environment.mpi_environment()['I_MPI_ROOT']") == str(prefix)
    path = environment.evaluate("mpi_environment.mpi_environment()['PATH']")
    assert path.startswith(f"{prefix}/bin:")
    libraries = environment.evaluate("mpi_environment.mpi_environment()['LD_LIBRARY_PATH']")
    assert libraries == f"{prefix}/lib:/elsewhere"


def test_several_hosts_are_reached_over_tcp_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("FI_PROVIDER", raising=False)
    several = mpi_environment(one_host=False)
    assert several["FI_PROVIDER"] == "tcp"
    assert {"I_MPI_FABRICS", "I_MPI_HYDRA_BOOTSTRAP"}.isdisjoint(several)
    assert mpi_environment()["I_MPI_FABRICS"] == "shm"
    monkeypatch.setenv("FI_PROVIDER", "psm3")
    assert mpi_environment(one_host=False)["FI_PROVIDER"] == "psm3"
