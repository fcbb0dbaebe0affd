"""Starts Horovod under an agent, and shuts it down in the right order."""

import atexit
import gc
import os
from functools import cache
from typing import Any

import horovod.tensorflow as _horovod
from horovod.common.exceptions import HorovodInternalError
from tensorflow.python.eager import context

from hvd_ft import native
from hvd_ft.errors import HvdFtError
from hvd_ft.native.types import Point
from hvd_ft.system.say import say
from hvd_ft.tensorflow.averages import note_averages
from hvd_ft.tensorflow.broadcasts import broadcast_bytes, name_broadcasts_by_place
from hvd_ft.tensorflow.draws import keep_draws
from hvd_ft.tensorflow.generated_code import keep_generated_code_in_memory
from hvd_ft.tensorflow.made_variables import note_variables
from hvd_ft.tensorflow.tracing import leave_horovod_unconverted
from hvd_ft.tensorflow.without_snapshots import watch_trainings
from hvd_ft.worker import peer_hooks, rosters
from hvd_ft.worker.exit_reason import keep_last_words
from hvd_ft.worker.exit_status import prepare_exit
from hvd_ft.worker.mpi4py_guard import guard_mpi4py

keep_last_words()
guard_mpi4py()
name_broadcasts_by_place()
leave_horovod_unconverted()
keep_generated_code_in_memory()
note_variables()
note_averages()


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Initialises Horovod, as `horovod.tensorflow.init` does, and prepares it for an agent.

    Args:
        comm: see Horovod; must be omitted under an agent. process_sets: see Horovod; under an agent
            not from an MPI communicator.

    Raises:
        HvdFtError: an MPI communicator is given under an agent, or samples of autotuning without
            a step.
        ValueError: Horovod could not be initialised.
    """
    worker = native.worker()
    if worker is None:
        _horovod.init(comm, process_sets)
        _say_stock()
        return
    sets = process_sets if isinstance(process_sets, list | tuple) else []
    if comm or any(ps.mpi_comm is not None for ps in sets):
        raise HvdFtError(
            "a communicator is not supported on the ft backend: leave comm= out of hvd.init(), "
            "make process sets of ranks, or run the script without hvdft"
        )
    _check_autotune(worker)
    prepare_exit(worker)
    keep_draws()
    watch_trainings(worker)
    _horovod.init(None, process_sets)
    _follow_rosters()
    _prepare_end(worker)
    _leave_modules_out_of_collections()
    peer_hooks.start()


def barrier() -> None:
    """Waits until every rank has called it; all ranks need the same order of collectives.

    Raises:
        HorovodInternalError: Horovod is not initialised, or is shut down meanwhile.
    """
    if not _horovod.mpi_ops._basics.MPI_LIB_CTYPES.horovod_ft_barrier():
        raise HorovodInternalError("barrier: Horovod is not initialised or was shut down")


def enabled() -> bool:
    """Returns whether this process has an agent, so that training survives its death."""
    return native.worker() is not None


def incarnation() -> int:
    """Returns how many times this rank has been restarted; 0 without an agent."""
    worker = native.worker()
    return 0 if worker is None else worker.incarnation


def _check_autotune(worker: native.Worker) -> None:
    if os.environ.get("HOROVOD_AUTOTUNE", "0") in ("", "0"):
        return
    steps = os.environ.get("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "10")
    if not steps.isdecimal() or int(steps) < 1:  # a score is bytes divided by time
        raise HvdFtError(
            f"HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE={steps} is not a number of steps; give 1 or more"
        )
    if "HOROVOD_FUSION_THRESHOLD" in os.environ and worker.rank == worker.incarnation == 0:
        say(
            "HOROVOD_FUSION_THRESHOLD is set, so autotuning leaves it as it is; unset it to have "
            "it tuned"
        )


@cache
def _follow_rosters() -> None:
    library = _horovod.mpi_ops._basics.MPI_LIB_CTYPES

    def begin(number: int) -> bool:
        return bool(library.horovod_ft_begin_roster(number))

    def broadcast(data: bytes) -> bytes:
        with context.eager_mode():  # an Estimator's hooks are called where a graph is the default
            return broadcast_bytes(data, "hvd_ft.returned.size", "hvd_ft.returned.state")

    rosters.register(begin, lambda: bool(library.horovod_ft_await_roster()), broadcast)


@cache
def _say_stock() -> None:
    if _horovod.rank() == 0:
        say(
            "no agent, so this is stock Horovod and a dead rank ends the job; start the "
            "script with 'hvdft run'"
        )


@cache
def _leave_modules_out_of_collections() -> None:
    # They are most of a process's objects, and they stay. A garbage collection of them takes 0.3 s,
    # for which the other ranks wait: now and then in training, and twice when the interpreter ends.
    gc.freeze()


@cache
def _prepare_end(worker: native.Worker) -> None:
    # Registered after Horovod's shutdown, so it runs before it.
    atexit.register(lambda: native.failpoint(Point.END, worker.cursor()))
