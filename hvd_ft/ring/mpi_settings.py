"""The settings that Intel MPI needs before MPI_Init to have endpoints."""

import contextlib
import os
import sys

from hvd_ft.errors import HvdFtError

# One for each of the two colours of edges, one for the last edge of an odd ring, and number 0,
# which is left to the program's own communicators.
ENDPOINTS = 4
# MPI's own blocking calls yield: a polling wait takes the core from the processes it waits for.
_PATIENT = {"I_MPI_THREAD_YIELD": "3"}


def split_threads(endpoints: int) -> dict[str, str]:
    """Returns the variables with which MPI starts so many endpoints; with 1, no split threads."""
    if endpoints == 1:
        return {"I_MPI_THREAD_SPLIT": "0"}
    return {
        "I_MPI_THREAD_SPLIT": "1",
        # Explicit, because Intel MPI would ask OpenMP for threads if the process has loaded it.
        "I_MPI_THREAD_RUNTIME": "generic",
        "I_MPI_THREAD_MAX": str(endpoints),
    }


def prepare(endpoints: int = 2) -> None:
    """Sets the environment for MPI_Init; call it before `from mpi4py import MPI`.

    Variables that are set already stay unchanged, except those that split threads.

    Args:
        endpoints: 2, a send and a receive endpoint for each process; or 1, MPI without split
            threads, which the ring variant `threads` needs.

    Raises:
        HvdFtError: MPI is already initialised, or `endpoints` is neither 1 nor 2.
    """
    if endpoints not in (1, 2):
        raise HvdFtError(f"endpoints={endpoints!r} is not known to the ring: give 1 or 2")
    if mpi_is_running():
        raise HvdFtError(
            "MPI is running already, so it is too late to prepare it for the ring: "
            "call hvd_ft.ring.prepare() before 'from mpi4py import MPI'"
        )
    os.environ.update(split_threads(ENDPOINTS if endpoints == 2 else 1))
    for name, value in {**_PATIENT, **_root(), **_provider()}.items():
        os.environ.setdefault(name, value)


def mpi_is_running() -> bool:
    """Returns whether mpi4py has initialised MPI."""
    module = sys.modules.get("mpi4py.MPI")
    return module is not None and bool(module.Is_initialized())


def _root() -> dict[str, str]:
    """Returns the place of Intel MPI, which it does not find itself if it was installed by pip."""
    from hvd_ft.install.environment import mpi_root

    with contextlib.suppress(HvdFtError):
        return {"I_MPI_ROOT": str(mpi_root())}
    return {}


def _provider() -> dict[str, str]:
    """Returns the provider for Ethernet; with a fast fabric the choice is left to Intel MPI."""
    from hvd_ft.install.fabric import choose_provider, fast_devices

    chosen = choose_provider(os.environ, fast_devices()).name
    return {"I_MPI_OFI_PROVIDER": "tcp"} if chosen == "tcp" else {}
