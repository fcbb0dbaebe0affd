"""Guards mpi4py in workers whose Python does not read PYTHONPATH (`python -E`, `python -I`)."""

import os
import sys

from hvd_ft.system.say import say

_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mpi_guard")
_LAUNCHED = ("PMI_RANK", "PMI_FD", "PMI_PORT", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")


def guard_mpi4py() -> None:
    """Makes mpi4py refuse calls that would be wrong in a worker (`mpi_guard`); called at an import.

    Other workers find the guard by PYTHONPATH. If MPI is already imported, it is too late, and a
    line says so.
    """
    in_worker = "HOROVOD_FT_DIR" in os.environ
    if not in_worker or _FOLDER in sys.path or any(name in os.environ for name in _LAUNCHED):
        return
    sys.path.insert(0, _FOLDER)
    if "mpi4py.MPI" in sys.modules:
        say(
            "this script has imported mpi4py's MPI before hvd_ft, in a Python that ignores "
            "PYTHONPATH (-E or -I): there each rank is rank 0 of 1; import hvd_ft first, or leave "
            "that flag out"
        )
        return
    sys.modules.pop("mpi4py", None)  # MPI is then imported from the guard's
