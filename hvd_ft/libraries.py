"""Where the compiled libraries lie; it can be asked before anything else is installed."""

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def library_path() -> str:
    """Where libhvd_ft.so lies; HOROVOD_FT_LIBRARY, if an agent set it."""
    return os.environ.get("HOROVOD_FT_LIBRARY") or str(_PACKAGE / "libhvd_ft.so")


def mpi_library_path() -> str:
    """Where libhvdft_mpi.so lies, which only processes that speak MPI load."""
    return str(_PACKAGE / "libhvdft_mpi.so")
