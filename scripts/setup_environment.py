"""Sets up the checkout: a .venv with the pinned packages, hvd_ft itself, the patched Horovod.

With TORCH=1 in the environment PyTorch is added, and Horovod gets a binding for it. Once PyTorch
is there, it stays.

Each step is done once and again when its inputs change: a stamp in .venv/stamps holds the hash of
the inputs. A stamp is written after its step, so an interrupted set-up can simply be run again.
Uses the standard library only, because there is nothing else yet.
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
VENV = ROOT / ".venv"
CSRC = ROOT / "hvd_ft" / "csrc"
PYTHON = VENV / "bin" / "python"
STAMPS = VENV / "stamps"
PACKAGE = ("setup.py", "pyproject.toml", "CMakeLists.txt", "hvd_ft/__init__.py")
PIP = (str(PYTHON), "-m", "pip", "--disable-pip-version-check")


def check_machine() -> None:
    """Ends with one line when something is missing that PyPI does not have."""
    if sys.version_info[:2] != (3, 11):
        sys.exit(
            f"setup: this is Python {sys.version.split()[0]}, and TensorFlow 2.15.1 and hvd_ft "
            "need 3.11; run: make setup PYTHON=python3.11"
        )
    if importlib.util.find_spec("ensurepip") is None:
        sys.exit("setup: Python's venv module is not complete; run: apt-get install python3-venv")
    for tool, package in (("g++", "g++"), ("make", "make")):
        if shutil.which(tool) is None:
            sys.exit(f"setup: {tool} was not found; run: apt-get install {package}")


def make_venv() -> None:
    """Makes .venv, anew if another Python made it or its making was interrupted."""
    config = VENV / "pyvenv.cfg"
    same = config.is_file() and f"version = {platform.python_version()}\n" in config.read_text()
    run(sys.executable, "-m", "venv", *([] if same else ["--clear"]), str(VENV))


def install_packages() -> None:
    """Installs the pinned packages."""
    run(*PIP, "install", "-r", "requirements.txt")


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
    requirements = ROOT / "requirements.txt"
    builder = [
        ROOT / f"hvd_ft/{name}.py"
        for name in (
            *("installed/horovod_source", "installed/patch_files", "installed/frameworks"),
            *("tools/install/horovod_build", "tools/install/patching"),
        )
    ]
    with_torch = os.environ.get("TORCH") == "1" or (STAMPS / install_torch.__name__).is_file()
    torch = [ROOT / "requirements-torch.txt"] if with_torch else []
    build_inputs = [*torch, *horovod, *patches, *builder, requirements, CSRC / "include/hvd_ft.h"]

    step("Python environment", make_venv, [])
    step("packages (2 GB on disk, from the package index)", install_packages, [requirements])
    if with_torch:
        step("PyTorch", install_torch, torch)
    step("hvd_ft", install_hvd_ft, [*package, *core])
    step("Horovod with the ft backend", build_horovod, build_inputs)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("setup: interrupted; run it again to continue")
