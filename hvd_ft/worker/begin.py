"""What `hvd.init()` does for an agent, whatever the framework: checks before, preparations after.

Each framework's `init` (hvd_ft/tensorflow/basics.py, hvd_ft/torch/basics.py) calls `start`.
"""

import atexit
import gc
import os
from collections.abc import Callable
from functools import cache
from typing import Any

from hvd_ft import native
from hvd_ft.errors import HvdFtError
from hvd_ft.native.types import Point
from hvd_ft.system.say import say
from hvd_ft.worker import peer_hooks, rosters
from hvd_ft.worker.exit_status import prepare_exit


def enabled() -> bool:
    """Returns whether this process has an agent, so that training survives its death."""
    return native.worker() is not None


def incarnation() -> int:
    """Returns how many times this rank has been restarted; 0 without an agent."""
    worker = native.worker()
    return 0 if worker is None else worker.incarnation


def start(
    horovod: Any,
    comm: Any,
    process_sets: Any,
    prepare: Callable[[native.Worker], None],
    broadcast: Callable[[bytes], bytes],
) -> None:
    """Initialises a framework's Horovod, and prepares it for an agent if there is one.

    Args:
        horovod: the framework's module of Horovod.
        comm: what `hvd.init` got.
        process_sets: likewise.
        prepare: what the framework needs under an agent, before Horovod is initialised.
        broadcast: returns rank 0's bytes on all present ranks.

    Raises:
        HvdFtError: an MPI communicator is given under an agent, or samples of autotuning without
            a step.
        ValueError: Horovod could not be initialised.
    """
    worker = native.worker()
    if worker is None:
        horovod.init(comm, process_sets)
        say_stock(horovod.rank())
        return
    check_communicator(comm, process_sets)
    check_autotune(worker)
    prepare_exit(worker)
    prepare(worker)
    horovod.init(None, process_sets)
    follow_rosters(horovod.mpi_ops._basics.MPI_LIB_CTYPES, broadcast)
    prepare_end(worker)
    leave_modules_out_of_collections()
    peer_hooks.start()


def check_communicator(comm: Any, process_sets: Any) -> None:
    """Refuses an MPI communicator, which a worker cannot have.

    Args:
        comm: what `hvd.init` got.
        process_sets: likewise.

    Raises:
        HvdFtError: one of them is an MPI communicator, or is made of one.
    """
    sets = process_sets if isinstance(process_sets, list | tuple) else []
    if comm or any(ps.mpi_comm is not None for ps in sets):
        raise HvdFtError(
            "a communicator is not supported on the ft backend: leave comm= out of hvd.init(), "
            "make process sets of ranks, or run the script without hvdft"
        )


def check_autotune(worker: native.Worker) -> None:
    """Checks the settings of Horovod's autotuning, if it is on.

    Raises:
        HvdFtError: its samples have no step.
    """
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
def follow_rosters(library: Any, broadcast: Callable[[bytes], bytes]) -> None:
    """Makes the framework's Horovod follow changes of the present ranks.

    Args:
        library: Horovod's shared library of this framework, by ctypes.
        broadcast: returns rank 0's bytes on all present ranks.
    """

    def begin(number: int) -> bool:
        return bool(library.horovod_ft_begin_roster(number))

    rosters.register(begin, lambda: bool(library.horovod_ft_await_roster()), broadcast)


@cache
def say_stock(rank: int) -> None:
    """Says once in a job that there is no agent."""
    if rank == 0:
        say(
            "no agent, so this is stock Horovod and a dead rank ends the job; start the "
            "script with 'hvdft run'"
        )


@cache
def leave_modules_out_of_collections() -> None:
    """Keeps what is imported by now out of garbage collections.

    It is most of a process's objects, and it stays. A collection of it takes 0.3 s, for which the
    other ranks wait: now and then in training, and twice when the interpreter ends.
    """
    gc.freeze()


@cache
def prepare_end(worker: native.Worker) -> None:
    """Passes a failpoint where the interpreter ends, before Horovod is shut down.

    Call it when Horovod is initialised: what is registered later runs earlier.
    """
    atexit.register(lambda: native.failpoint(Point.END, worker.cursor()))
