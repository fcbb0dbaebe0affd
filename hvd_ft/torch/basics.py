"""Starts Horovod under an agent."""

from typing import Any

import horovod.torch as _horovod

from hvd_ft import native
from hvd_ft.torch.broadcasts import broadcast_bytes
from hvd_ft.torch.op_names import name_operations_by_count
from hvd_ft.torch.staging import stage_operations
from hvd_ft.torch.waits import report_waits
from hvd_ft.torch.without_snapshots import watch_trainings
from hvd_ft.worker.begin import start
from hvd_ft.worker.exit_reason import keep_last_words
from hvd_ft.worker.mpi4py_guard import guard_mpi4py

keep_last_words()
guard_mpi4py()
name_operations_by_count()
stage_operations()


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
    start(_horovod, comm, process_sets, _prepare, _broadcast)


def _prepare(worker: native.Worker) -> None:
    watch_trainings(worker)
    report_waits(worker)


def _broadcast(data: bytes) -> bytes:
    return broadcast_bytes(data, "hvd_ft.returned.size", "hvd_ft.returned.state")
