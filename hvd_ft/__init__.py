"""Fault-tolerant Horovod over MPI: a rank that dies is restarted, the others wait and carry on."""

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hvd_ft.function import run as run

__version__ = "0.2.0"

if "HOROVOD_FT_INJECT" in os.environ:  # a worker that has a drill: its script begins
    from hvd_ft import native

    native.failpoint(native.Point.START)


def __getattr__(name: str) -> Any:
    if name == "run":  # not at the start of every worker
        from hvd_ft.function import run

        return run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
