"""Finds and checks the requirements: Intel MPI, TensorFlow, the patched Horovod, the libraries.

Everything is looked up without importing TensorFlow or Horovod, so that a check is fast.
"""

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from hvd_ft import __version__, libraries
from hvd_ft.errors import HvdFtError
from hvd_ft.install import horovod_source
from hvd_ft.install.fabric import choose_provider, fast_devices, why_no_endpoints
from hvd_ft.install.horovod_source import HOROVOD_VERSION, TENSORFLOW_VERSION
from hvd_ft.job.binding import asked_binding
from hvd_ft.job.settings import Settings

_MPIEXEC = "mpiexec.hydra"
_REMEDY = "install hvd_ft again: pip install . (in a checkout: make core)"
_ONE_HOST = {
    # Inside a Slurm, LSF or PBS allocation mpirun would start the ranks through it.
    "I_MPI_HYDRA_BOOTSTRAP": "fork",
    # Saves the search for a network provider and its start.
    "I_MPI_FABRICS": "shm",
}


# Endpoints of an agent: the main thread's, the mirror's, that of gathered ops, and for each
# connection of the ring's edges one for each of their colours (mpi/leader.cc).
_OTHER_ENDPOINTS, _COLOURS = 3, 3


def endpoints_for(connections: int) -> int:
    """Returns the endpoints that an agent needs with so many connections of each edge."""
    return _OTHER_ENDPOINTS + _COLOURS * connections


def connections_of(endpoints: int) -> int:
    """Returns the connections of each edge for which so many endpoints are enough."""
    return max(endpoints - _OTHER_ENDPOINTS, 0) // _COLOURS


def split_into(endpoints: int) -> dict[str, str]:
    """Returns the variables by which MPI has so many endpoints; with 1, threads are not split."""
    if endpoints == 1:
        return {"I_MPI_THREAD_SPLIT": "0"}
    return {
        "I_MPI_THREAD_SPLIT": "1",
        # Named, because Intel MPI would ask OpenMP for threads if the process has loaded it, as
        # TensorFlow does.
        "I_MPI_THREAD_RUNTIME": "generic",
        "I_MPI_THREAD_MAX": str(endpoints),
    }


def split_threads(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables by which MPI has the endpoints that agents need, if it can have any.

    Args:
        environ: The user's settings.
    """
    # Alone: other settings may wait for what the command line gives.
    needed = endpoints_for(Settings.alone(environ, "connections"))
    return split_into(1 if why_no_endpoints(environ) else needed)


# Over TCP an endpoint of MPI has buffers of 17 MB for one-sided communication, which agents do not
# use, and of 17 MB for short messages. Every agent has all endpoints, though only leaders use them:
# MPI starts only if all processes have the same number.
_SMALL_ENDPOINTS = {
    "MPIR_CVAR_CH4_OFI_ENABLE_AM": "0",
    "FI_TCP_MAX_RX_SIZE": "1024",
}


def small_endpoints(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that keep MPI's memory in an agent small, as far as they apply.

    Args:
        environ: The agents' environment; what it sets already stays, and without the provider `tcp`
            of the network everything does.
    """
    if environ.get("FI_PROVIDER") != "tcp":
        return {}
    return {name: value for name, value in _SMALL_ENDPOINTS.items() if name not in environ}


def mpi_environment(
    one_host: bool = True, environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Returns the variables that mpirun and the agents need: the user sources no script.

    Args:
        one_host: Whether all ranks run on this host.
        environ: What a job is given; None: `os.environ`.

    Returns:
        Variables to put on top of it.

    Raises:
        HvdFtError: Intel MPI is absent.
    """
    root = mpi_root()
    environ = os.environ if environ is None else environ
    return {
        "I_MPI_ROOT": str(root),
        "PATH": _before(f"{sys.prefix}/bin", _before(f"{root}/bin", environ.get("PATH"))),
        # Lets a Horovod that was built against an Intel MPI outside the environment find it.
        "LD_LIBRARY_PATH": _before(f"{root}/lib", environ.get("LD_LIBRARY_PATH")),
        **(_ONE_HOST if one_host else _network(environ)),
        **split_threads(environ),
        # An agent that waits in MPI would poll, and so take a whole CPU from the workers
        # (I_MPI_WAIT_MODE has no effect with split threads) ...
        "I_MPI_THREAD_YIELD": "3",
        # ... and pass its own CPU mask on to its worker, which hvd_ft binds itself.
        "I_MPI_PIN": "0",
        "HOROVOD_FT_BIND_TO": asked_binding(environ),
    }


def _network(environ: Mapping[str, str]) -> dict[str, str]:
    provider = choose_provider(environ, fast_devices())
    chosen = {"FI_PROVIDER": provider.name} if provider.name else {}
    return chosen | small_endpoints({**environ, **chosen})


def mpiexec_command(size: int, environment: Mapping[str, str]) -> list[str]:
    """Returns the beginning of a command line that starts processes under Intel MPI.

    Args:
        size: How many.
        environment: The command's whole environment; Intel MPI is found by its PATH.

    Raises:
        HvdFtError: Intel MPI is not there.
    """
    # mpirun is a shell script around this program; without the shell its exit status is visible.
    mpiexec = shutil.which(_MPIEXEC, path=environment.get("PATH"))
    if mpiexec is None:
        raise HvdFtError(
            f"Intel MPI's {_MPIEXEC} is not in PATH; run: pip install impi-rt impi-devel"
        )
    return [mpiexec, "-np", str(size)]


def mpi_root() -> Path:
    """Returns the directory of Intel MPI: in this environment, otherwise I_MPI_ROOT.

    Raises:
        HvdFtError: there is no Intel MPI in either.
    """
    candidates = [sys.prefix] if horovod_source.version_of("impi-rt") else []
    candidates.append(os.environ.get("I_MPI_ROOT", ""))
    for root in filter(None, candidates):
        if os.access(f"{root}/bin/{_MPIEXEC}", os.X_OK):
            return Path(root)
    raise HvdFtError(
        "Intel MPI was not found: impi-rt is not installed in this Python environment, and "
        "I_MPI_ROOT names no directory that has it; run: pip install impi-rt impi-devel"
    )


def check_environment() -> dict[str, str]:
    """Checks that everything a job needs is installed in fitting versions.

    Returns: The parts found: each one's name and its version or place.

    Raises:
        HvdFtError: a part is absent or does not fit; its line gives the remedy.
    """
    return {name: check() for name, check in CHECKS.items()}


def check_mpi() -> str:
    """Returns Intel MPI's version, or its place; raises HvdFtError when it is absent."""
    root = mpi_root()
    return horovod_source.version_of("impi-rt") or str(root)


def check_tensorflow() -> str:
    """Returns TensorFlow's version; raises HvdFtError when it is not the required one."""
    version = horovod_source.tensorflow_version()
    if version == TENSORFLOW_VERSION:
        return version
    found = f"TensorFlow {version} is installed" if version else "TensorFlow is not installed"
    raise HvdFtError(
        f"{found}, and hvd_ft works with {TENSORFLOW_VERSION}; "
        f"run: pip install tensorflow-cpu=={TENSORFLOW_VERSION}"
    )


def check_horovod() -> str:
    """Returns Horovod's version; raises HvdFtError when it lacks the ft backend of this hvd_ft."""
    version = horovod_source.version_of("horovod")
    remedy = "run 'hvdft build-horovod'"
    if version is None:
        raise HvdFtError(f"Horovod is not installed; {remedy}")
    if version != HOROVOD_VERSION:
        raise HvdFtError(
            f"Horovod {version} is installed, and hvd_ft works with {HOROVOD_VERSION}; {remedy}"
        )
    key = horovod_source.installed_key()
    if not key:
        raise HvdFtError(
            f"Horovod {version} has no ft backend: it was not built by hvd_ft; {remedy}"
        )
    if key != horovod_source.build_key():
        raise HvdFtError(
            f"Horovod {version} has the ft backend of another hvd_ft, TensorFlow or Intel MPI "
            f"(key {key}); {remedy}"
        )
    return version


def check_library() -> str:
    """Returns the version of libhvd_ft.so; raises HvdFtError when it is absent or another's."""
    path = libraries.library_path()
    _check_file(path)
    from hvd_ft import native  # needs cffi, which may be the absent part

    version = native.version()
    if version != __version__:
        raise HvdFtError(f"{path} is of version {version}, hvd_ft of {__version__}; {_REMEDY}")
    return version


def check_mpi_library() -> str:
    """Returns the place of libhvdft_mpi.so; raises HvdFtError when it is absent.

    It is not loaded, as that requires MPI in the process. libhvdft_listen.so goes with it.
    """
    path = libraries.mpi_library_path()
    _check_file(path)
    _check_file(libraries.listen_library_path())
    return path


def _check_file(path: str) -> None:
    if not os.path.isfile(path):
        raise HvdFtError(f"{path} was not found: it has not been compiled; {_REMEDY}")


CHECKS: Mapping[str, Callable[[], str]] = {
    "Intel MPI": check_mpi,
    "TensorFlow": check_tensorflow,
    "Horovod": check_horovod,
    "libhvd_ft.so": check_library,
    "libhvdft_mpi.so": check_mpi_library,
}


def _before(first: str, rest: str | None) -> str:
    return f"{first}{os.pathsep}{rest}" if rest else first
