"""What `import mpi4py` finds in a worker: the real package, with a module MPI that refuses.

A worker is not an MPI process. Real MPI would silently start there as a job of one process, in
which every rank is rank 0 of 1. Here MPI.COMM_WORLD has the rank and the size of the job, so
scripts and libraries that only read these work, and everything else is an error.

A program that the worker starts with its own mpirun gets the real MPI. Any Python that the worker
runs finds this file, so it imports nothing of hvd_ft.
"""

import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

_LAUNCHED = ("PMI_RANK", "PMI_FD", "PMI_PORT", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
_REASON = (
    "cannot be used in a worker of hvd_ft, which is no MPI process (each would be rank 0 of 1): "
    "only COMM_WORLD's rank and size are given there; use hvd (hvd_ft.tensorflow or "
    "hvd_ft.torch) for collectives and hvd_ft.p2p for messages"
)


class _Refusing:
    """Raises an error for every attribute that it does not have."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python itself asks: whether it can be copied, shown, …
            raise AttributeError(name)
        raise RuntimeError(f"mpi4py's {self._called}.{name} {_REASON}")

    _called = "MPI"


class Comm(_Refusing):
    """A communicator of which only rank and size are known."""

    _called = "MPI.COMM_WORLD"

    def Get_rank(self) -> int:
        """Returns this worker's rank in the job."""
        return _now("rank")

    def Get_size(self) -> int:
        """Returns the number of the job's ranks."""
        return _now("size")

    rank = property(Get_rank)
    size = property(Get_size)


class _Mpi(_Refusing, ModuleType):
    """The module mpi4py.MPI."""

    def __init__(self) -> None:
        super().__init__("mpi4py.MPI", __doc__)
        self.COMM_WORLD = Comm()
        self.Comm = self.Intracomm = Comm  # for annotations

    def Is_initialized(self) -> bool:
        """Returns that MPI never is."""
        return False

    def Is_finalized(self) -> bool:
        """Returns that MPI never is."""
        return False


def _now(what: str) -> int:
    """Returns the rank or the size; ranks may have left or returned since the start."""
    for framework in ("tensorflow", "torch"):
        horovod = sys.modules.get(f"horovod.{framework}")
        if horovod is not None and horovod.is_initialized():
            return int(getattr(horovod, what)())
    return int(os.environ[f"HOROVOD_{what.upper()}"])


def _load() -> None:
    """Puts the real package in this one's place."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    others = [path for path in sys.path if os.path.abspath(path or os.curdir) != here]
    spec = importlib.machinery.PathFinder.find_spec("mpi4py", others)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError("No module named 'mpi4py'", name="mpi4py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["mpi4py"] = module
    spec.loader.exec_module(module)
    if not any(name in os.environ for name in _LAUNCHED):
        sys.modules["mpi4py.MPI"] = module.MPI = _Mpi()  # type: ignore[attr-defined]


_load()
