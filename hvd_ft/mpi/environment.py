"""Where Intel MPI is, what it needs in the environment, and how its mpirun is called."""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from hvd_ft.errors import HvdFtError
from hvd_ft.job.core_limits import core_limit
from hvd_ft.job.settings import Settings
from hvd_ft.mpi.fabric import choose_provider, fast_devices, why_no_endpoints
from hvd_ft.mpi.variables import asked_binding
from hvd_ft.system.distributions import version_of

_MPIEXEC = "mpiexec.hydra"
_ONE_HOST = {
    # Inside a Slurm, LSF or PBS allocation mpirun would start the ranks through it.
    "I_MPI_HYDRA_BOOTSTRAP": "fork",
    # Saves the search for a network provider and its start.
    "I_MPI_FABRICS": "shm",
}


# Endpoints of an agent.
_OTHER_ENDPOINTS, _COLOURS = core_limit("OTHER_ENDPOINTS"), core_limit("EDGE_COLOURS")


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
        environ: The agents' environment. Variables that it sets stay; if the network's provider is
            not `tcp`, nothing is changed.
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
        environ: The job's environment; None: `os.environ`.

        Returns:
            Variables to add to it.

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
        size: Number of processes.
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
    candidates = [sys.prefix] if version_of("impi-rt") else []
    candidates.append(os.environ.get("I_MPI_ROOT", ""))
    for root in filter(None, candidates):
        if os.access(f"{root}/bin/{_MPIEXEC}", os.X_OK):
            return Path(root)
    raise HvdFtError(
        "Intel MPI was not found: impi-rt is not installed in this Python environment, and "
        "I_MPI_ROOT names no directory that has it; run: pip install impi-rt impi-devel"
    )


def _before(first: str, rest: str | None) -> str:
    return f"{first}{os.pathsep}{rest}" if rest else first
