"""The places of the compiled libraries; usable before anything else is installed."""

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def library_path() -> str:
    """Path of libhvd_ft.so: HOROVOD_FT_LIBRARY if an agent has set it."""
    return os.environ.get("HOROVOD_FT_LIBRARY") or str(_PACKAGE / "libhvd_ft.so")


def listen_library_path() -> str:
    """Path of libhvdft_listen.so, which is preloaded into mpirun."""
    return str(_PACKAGE / "libhvdft_listen.so")


def mpi_library_path() -> str:
    """Path of libhvdft_mpi.so, which only processes that use MPI load."""
    return str(_PACKAGE / "libhvdft_mpi.so")
