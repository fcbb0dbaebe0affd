"""Starting Horovod under an agent, and ending in an orderly way."""

import atexit
import os
import sys
from functools import cache
from types import TracebackType
from typing import Any

import horovod.tensorflow as _horovod
from horovod.common.exceptions import HorovodInternalError

from hvd_ft import hooks, native
from hvd_ft.errors import HvdFtError
from hvd_ft.facts import Point
from hvd_ft.last_words import keep_last_words
from hvd_ft.tensorflow.broadcast_names import name_broadcasts_by_place
from hvd_ft.tensorflow.tracing import leave_horovod_unconverted

keep_last_words()
name_broadcasts_by_place()
leave_horovod_unconverted()


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Initialises Horovod, as `horovod.tensorflow.init` does; without an agent it is just that.

    Args:
        comm: see Horovod; under an agent it has to be left out.
        process_sets: see Horovod; under an agent they have to be left out.

    Raises:
        HvdFtError: `comm` or `process_sets` is given under an agent, or autotuning is on.
        ValueError: Horovod could not be initialised.
    """
    worker = native.worker()
    if worker is None:
        _horovod.init(comm, process_sets)
        _say_stock()
        return
    for name, value in (("comm", comm), ("process_sets", process_sets)):
        if value:
            what = "process sets are" if name == "process_sets" else "a communicator is"
            raise HvdFtError(
                f"{what} not supported on the ft backend: leave {name}= out of hvd.init(), or run "
                "the script without hvdft"
            )
    if os.environ.get("HOROVOD_AUTOTUNE", "0") not in ("", "0"):
        raise HvdFtError(
            "the ft backend has no autotuning: leave HOROVOD_AUTOTUNE and --autotune out, or run "
            "the script without hvdft"
        )
    _prepare_exit(worker)
    _horovod.init()
    _prepare_end(worker)
    hooks.start()


def barrier() -> None:
    """Waits until every rank is here; the ranks' order of collectives has to be the same.

    Raises:
        HorovodInternalError: Horovod is not initialised, or is shut down meanwhile.
    """
    if not _horovod.mpi_ops._basics.MPI_LIB_CTYPES.horovod_ft_barrier():
        raise HorovodInternalError("barrier: Horovod is not initialised or was shut down")


def enabled() -> bool:
    """Tells whether this process has an agent, so that training outlives its death."""
    return native.worker() is not None


def incarnation() -> int:
    """Returns how many times this rank has been restarted; 0 without an agent."""
    worker = native.worker()
    return 0 if worker is None else worker.incarnation


@cache
def _say_stock() -> None:
    if _horovod.rank() == 0:
        print(
            "hvd_ft: no agent, so this is stock Horovod and a dead rank ends the job; start the "
            "script with 'hvdft run'",
            file=sys.stderr,
        )


@cache
def _prepare_exit(worker: native.Worker) -> None:
    """Has the agent told when the script ends by itself: by its end or sys.exit.

    An uncaught exception, a signal and os._exit are failures, after which it is restarted.
    """
    previous = sys.excepthook

    def die(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        previous(kind, error, trace)
        sys.stdout.flush()
        sys.stderr.flush()
        # An ordinary end would go on to Horovod's shutdown: this rank would have left the others.
        os._exit(1)

    sys.excepthook = die
    # Horovod registers its shutdown after this, so it comes before: who dies in it has not ended
    # yet.
    atexit.register(worker.orderly_exit)
    atexit.register(lambda: native.pass_point(Point.EXIT, worker.cursor()))


@cache
def _prepare_end(worker: native.Worker) -> None:
    # Registered after Horovod's shutdown, so it comes before.
    atexit.register(lambda: native.pass_point(Point.END, worker.cursor()))
