"""`hvdft check`: looks for every part, loads the libraries, and has two ranks run."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from hvd_ft import __version__, libraries
from hvd_ft.errors import HvdFtError
from hvd_ft.installed import support
from hvd_ft.installed.environment import CHECKS
from hvd_ft.installed.horovod_source import built_for
from hvd_ft.mpi.environment import mpi_environment
from hvd_ft.tools.check.two_ranks import run_two_ranks

LOAD_SECONDS = 120.0
_LOAD_MPI_LIBRARY = "from hvd_ft.native import mpi; print(mpi.version())"
# The framework has to be loaded before it.
_LOAD_HOROVOD = "import ctypes, sys, {framework}; ctypes.CDLL(sys.argv[1]); print()"


def check_installation(say: Callable[[str], None]) -> list[str]:
    """Checks an installation.

    Args:
        say: Called with a line for every part that is found.

    Returns: The problems, one a line with its remedy; empty if there are none.
    """
    wrong: list[str] = []

    def look(name: str, check: Callable[[], str]) -> None:
        try:
            say(f"{name}: {check()}")
        except HvdFtError as error:
            wrong.append(str(error))

    for name, check in CHECKS.items():
        look(name, check)
    if (combination := support.present()) is not None:
        say(f"combination: {combination}: {support.verdict(combination, support.tested()).value}")
    if not wrong:
        look("libhvdft_mpi.so loads", load_mpi_library)
        look("Horovod loads", load_horovod)
    if not wrong:
        look("two ranks", run_two_ranks)
    return wrong


def load_mpi_library() -> str:
    """Loads libhvdft_mpi.so as an agent does, beside MPI; returns its version.

    Raises:
        HvdFtError: It cannot be loaded, or is of another version.
    """
    path = libraries.mpi_library_path()
    remedy = "install hvd_ft again: pip install . (in a checkout: make core)"
    version = _load(path, [_LOAD_MPI_LIBRARY], remedy)
    if version != __version__:
        raise HvdFtError(f"{path} is of version {version}, hvd_ft of {__version__}; {remedy}")
    return version


def load_horovod() -> str:
    """Loads Horovod's libraries as a worker does, each beside its framework; returns their places.

    Raises:
        HvdFtError: One is not there or cannot be loaded.
    """
    remedy = "run 'hvdft build-horovod --force'"
    found = []
    for framework in built_for():
        binding = metadata.distribution("horovod").locate_file(f"horovod/{framework.key}")
        library = next(Path(str(binding)).glob(framework.library), None)
        if library is None:
            raise HvdFtError(f"Horovod's library {framework.library} is not in {binding}; {remedy}")
        _load(str(library), [_LOAD_HOROVOD.format(framework=framework.key), str(library)], remedy)
        found.append(str(library))
    return ", ".join(found)


def _load(library: str, script: list[str], remedy: str) -> str:
    """Loads a library in a separate process; returns that process's output."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", *script],
            env={**os.environ, **mpi_environment(), "TF_CPP_MIN_LOG_LEVEL": "3"},
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=LOAD_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise HvdFtError(
            f"{library} was not loaded within {LOAD_SECONDS:g} s; see what else runs on this host"
        ) from None
    if done.returncode:
        code = done.returncode
        how = f"exit code {code}" if code > 0 else signal.Signals(-code).name
        *_, said = done.stderr.strip().splitlines() or [how]
        _, ours, line = said.partition(f"{HvdFtError.__name__}: ")
        if ours:
            raise HvdFtError(line)
        raise HvdFtError(f"{library} cannot be loaded ({said}); {remedy}")
    return done.stdout.strip()
