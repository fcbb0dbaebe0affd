"""Sets up the checkout: an environment with the pinned packages, hvd_ft, the patched Horovod.

The default is `.venv`, with TensorFlow 2.15 and Python 3.11, because tf.estimator ends with 2.15.
TENSORFLOW=2.21 in the environment, or a newer Python, makes another environment beside it, such as
`.venv-2.21-3.12`; `--folder` prints which. With TORCH=1 PyTorch is added, and Horovod gets a
binding for it. Once PyTorch is there, it stays.

Each step is done once and again when its inputs change: a stamp in the environment's `stamps`
holds the hash of the inputs. A stamp is written after its step, so an interrupted set-up can simply
be run again. Uses the standard library only, because there is nothing else yet.
"""

from __future__ import annotations  # an older Python gets as far as the message

import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The Pythons that each TensorFlow has wheels for, of those that hvd_ft works with; the first is the
# default of the first Python.
TENSORFLOWS = {"2.15": ((3, 11),), "2.21": ((3, 11), (3, 12), (3, 13))}
# The first release of hvd_ft's own pins; another one's replace them by name.
REQUIREMENTS = {
    "2.15": ("requirements.txt",),
    "2.21": ("requirements.txt", "requirements-2.21.txt"),
}
# It depends on the distribution `tensorflow`, which would be installed over tensorflow-cpu.
WITHOUT_DEPENDENCIES = ("tf_keras",)


def wanted() -> str:
    """Returns the TensorFlow to set up: TENSORFLOW's, or this Python's first."""
    fits = [name for name, pythons in TENSORFLOWS.items() if sys.version_info[:2] in pythons]
    return os.environ.get("TENSORFLOW") or next(iter(fits), "2.15")


def folder() -> str:
    """Returns the environment's folder."""
    name, python = wanted(), f"{sys.version_info[0]}.{sys.version_info[1]}"
    return ".venv" if (name, python) == ("2.15", "3.11") else f".venv-{name}-{python}"


VENV = ROOT / folder()
CSRC = ROOT / "hvd_ft" / "csrc"
PYTHON = VENV / "bin" / "python"
STAMPS = VENV / "stamps"
PACKAGE = ("setup.py", "pyproject.toml", "CMakeLists.txt", "hvd_ft/__init__.py")
PIP = (str(PYTHON), "-m", "pip", "--disable-pip-version-check")


def check_machine() -> None:
    """Ends with one line when something is missing that PyPI does not have."""
    if (name := wanted()) not in TENSORFLOWS:
        sys.exit(
            f"setup: TENSORFLOW={name} is not supported; give {' or '.join(TENSORFLOWS)}, such as "
            f"make setup TENSORFLOW={[*TENSORFLOWS][-1]}"
        )
    pythons = [f"{major}.{minor}" for major, minor in TENSORFLOWS[name]]
    if sys.version_info[:2] not in TENSORFLOWS[name]:
        sys.exit(
            f"setup: this is Python {sys.version.split()[0]}, and hvd_ft with TensorFlow {name} "
            f"needs {' or '.join(pythons)}; run: make setup PYTHON=python{pythons[0]}"
        )
    if importlib.util.find_spec("ensurepip") is None:
        sys.exit("setup: Python's venv module is not complete; run: apt-get install python3-venv")
    for tool, package in (("g++", "g++"), ("make", "make")):
        if shutil.which(tool) is None:
            sys.exit(f"setup: {tool} was not found; run: apt-get install {package}")


def make_venv() -> None:
    """Makes the environment, anew if another Python made it or its making was interrupted."""
    config = VENV / "pyvenv.cfg"
    same = config.is_file() and f"version = {platform.python_version()}\n" in config.read_text()
    run(sys.executable, "-m", "venv", *([] if same else ["--clear"]), str(VENV))


def install_packages() -> None:
    """Installs the pinned packages."""
    pins = pinned()
    for name, more in (("with", ()), ("without", ("--no-deps",))):
        apart = [pin for key, pin in pins.items() if (key in WITHOUT_DEPENDENCIES) == bool(more)]
        if apart:
            file = VENV / f"requirements-{name}-dependencies.txt"
            file.write_text("\n".join([*apart, ""]))
            run(*PIP, "install", *more, "-r", str(file))


def pinned() -> dict[str, str]:
    """Returns the requirements, by name."""
    pins: dict[str, str] = {}
    for file in REQUIREMENTS[wanted()]:
        for line in (ROOT / file).read_text().splitlines():
            if line and not line.startswith("#"):
                pins[line.partition("==")[0]] = line
    return pins


def install_torch() -> None:
    """Installs PyTorch."""
    run(*PIP, "install", "-r", "requirements-torch.txt")


def install_hvd_ft() -> None:
    """Compiles the core and installs hvd_ft such that the checkout is what gets imported."""
    run(*PIP, "install", "-q", "--no-deps", "--no-build-isolation", "-e", ".")


def build_horovod() -> None:
    """Builds and installs the patched Horovod; it knows by its key whether it has to."""
    run(str(PYTHON), "-m", "hvd_ft.tools.install.horovod_build")


def run(*command: str) -> None:
    """Runs a command in the checkout; ends with its name when it fails."""
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    if code:
        sys.exit(f"setup: '{' '.join(command[1:5])} ...' ended with exit code {code}, see above")


def step(name: str, action: Callable[[], None], inputs: list[Path]) -> None:
    """Does one step unless its stamp says that it was done with these inputs."""
    digest = hashlib.sha256(sys.version.encode())
    for path in sorted(inputs):
        digest.update(f"\0{path.name}\0".encode() + path.read_bytes())
    stamp = STAMPS / action.__name__
    if stamp.is_file() and stamp.read_text() == digest.hexdigest():
        return
    print(f"setup: {name} ...", flush=True)
    start = time.monotonic()
    stamp.unlink(missing_ok=True)
    action()
    STAMPS.mkdir(exist_ok=True)
    stamp.write_text(digest.hexdigest())
    print(f"setup: {name}: done in {time.monotonic() - start:.0f} s", flush=True)


def main() -> None:
    """Does what has to be done."""
    check_machine()
    sources = [path for path in CSRC.rglob("*") if path.suffix in (".cc", ".h")]
    horovod = [path for path in sources if CSRC / "horovod" in path.parents]
    core = [path for path in sources if path not in horovod]
    patches = list((ROOT / "patches").glob("horovod-*/*.patch"))
    package = [ROOT / name for name in PACKAGE]
    requirements = [ROOT / name for name in REQUIREMENTS[wanted()]]
    builder = [
        ROOT / f"hvd_ft/{name}.py"
        for name in (
            *("installed/horovod_source", "installed/patch_files", "installed/frameworks"),
            *("tools/install/horovod_build", "tools/install/patching"),
        )
    ]
    with_torch = os.environ.get("TORCH") == "1" or (STAMPS / install_torch.__name__).is_file()
    torch = [ROOT / "requirements-torch.txt"] if with_torch else []
    build_inputs = [*torch, *horovod, *patches, *builder, *requirements, CSRC / "include/hvd_ft.h"]

    step("Python environment", make_venv, [])
    step("packages (2 GB on disk, from the package index)", install_packages, requirements)
    if with_torch:
        step("PyTorch", install_torch, torch)
    step("hvd_ft", install_hvd_ft, [*package, *core])
    step("Horovod with the ft backend", build_horovod, build_inputs)


if __name__ == "__main__":
    if sys.argv[1:] == ["--folder"]:
        print(folder())
        sys.exit()
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("setup: interrupted; run it again to continue")
