"""Starts Horovod under an agent, and its barrier."""

from typing import Any

import horovod.tensorflow as _horovod
from horovod.common.exceptions import HorovodInternalError
from tensorflow.python.eager import context

from hvd_ft import native
from hvd_ft.tensorflow.averages import note_averages
from hvd_ft.tensorflow.broadcasts import broadcast_bytes, name_broadcasts_by_place
from hvd_ft.tensorflow.draws import keep_draws
from hvd_ft.tensorflow.generated_code import keep_generated_code_in_memory
from hvd_ft.tensorflow.keras_api import KERAS_3, refer_to_variables
from hvd_ft.tensorflow.made_variables import note_variables
from hvd_ft.tensorflow.tracing import leave_horovod_unconverted
from hvd_ft.tensorflow.without_snapshots import watch_trainings
from hvd_ft.worker.begin import start
from hvd_ft.worker.exit_reason import keep_last_words
from hvd_ft.worker.mpi4py_guard import guard_mpi4py

keep_last_words()
guard_mpi4py()
name_broadcasts_by_place()
leave_horovod_unconverted()
keep_generated_code_in_memory()
note_variables()
note_averages()
if KERAS_3:
    from hvd_ft.tensorflow.keras3_optimizer import use_for_keras_3

    refer_to_variables()
    use_for_keras_3()


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
    start(_horovod, comm, process_sets, _prepare, _broadcast)


def barrier() -> None:
    """Waits until every rank has called it; all ranks need the same order of collectives.

    Raises:
        HorovodInternalError: Horovod is not initialised, or is shut down meanwhile.
    """
    if not _horovod.mpi_ops._basics.MPI_LIB_CTYPES.horovod_ft_barrier():
        raise HorovodInternalError("barrier: Horovod is not initialised or was shut down")


def _prepare(worker: native.Worker) -> None:
    keep_draws()
    watch_trainings(worker)


def _broadcast(data: bytes) -> bytes:
    with context.eager_mode():  # an Estimator's hooks are called where a graph is the default
        return broadcast_bytes(data, "hvd_ft.returned.size", "hvd_ft.returned.state")
