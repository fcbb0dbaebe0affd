"""Starts Horovod under an agent, and shuts it down in the right order."""

from functools import cache
from typing import Any

import horovod.torch as _horovod

from hvd_ft import native
from hvd_ft.torch.broadcasts import broadcast_bytes
from hvd_ft.torch.op_names import name_operations_by_count
from hvd_ft.torch.without_snapshots import watch_trainings
from hvd_ft.worker import peer_hooks
from hvd_ft.worker.begin import (
    check_autotune,
    check_communicator,
    follow_rosters,
    leave_modules_out_of_collections,
    prepare_end,
    say_stock,
)
from hvd_ft.worker.exit_reason import keep_last_words
from hvd_ft.worker.exit_status import prepare_exit
from hvd_ft.worker.mpi4py_guard import guard_mpi4py

keep_last_words()
guard_mpi4py()
name_operations_by_count()


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Initialises Horovod, as `horovod.torch.init` does, and prepares it for an agent.

    Args:
        comm: see Horovod; must be omitted under an agent.
        process_sets: see Horovod; under an agent not from an MPI communicator.

    Raises:
        HvdFtError: an MPI communicator is given under an agent, or samples of autotuning without
            a step.
        ValueError: Horovod could not be initialised.
    """
    worker = native.worker()
    if worker is None:
        _horovod.init(comm, process_sets)
        say_stock(_horovod.rank())
        return
    check_communicator(comm, process_sets)
    check_autotune(worker)
    prepare_exit(worker)
    watch_trainings(worker)
    _horovod.init(None, process_sets)
    _follow_rosters()
    prepare_end(worker)
    leave_modules_out_of_collections()
    peer_hooks.start()


@cache
def _follow_rosters() -> None:
    def broadcast(data: bytes) -> bytes:
        return broadcast_bytes(data, "hvd_ft.returned.size", "hvd_ft.returned.state")

    follow_rosters(_horovod.mpi_ops._basics.MPI_LIB_CTYPES, broadcast)
