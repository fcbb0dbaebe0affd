"""Reports when the script waits for results, so that computing beside collectives counts as such.

All functions of Horovod wait in one, which is replaced here. What waits elsewhere reports nothing:
a script that polls a handle is taken to compute meanwhile. With torch.distributed it is C++ that
waits, so nothing is reported in a process that imports it: its script is taken to wait from its
last hand-over on.
"""

import functools
from typing import Any

from horovod.torch import mpi_ops

from hvd_ft import native

_WAIT = "horovod_torch_wait_and_clear"
_MARK = "reports_waits"  # attribute of the function that does
_reports = True


def report_none() -> None:
    """Has this process report no waits, whoever asks for it."""
    global _reports
    _reports = False


def report_waits(worker: native.Worker) -> None:
    """Reports this process's waits from now on."""
    wait = getattr(mpi_ops.mpi_lib, _WAIT)
    if not _reports or hasattr(wait, _MARK):
        return

    @functools.wraps(wait)
    def reported(handle: int) -> Any:
        worker.script_waits()
        try:
            return wait(handle)
        finally:
            worker.script_goes_on()

    setattr(reported, _MARK, True)
    setattr(mpi_ops.mpi_lib, _WAIT, reported)
