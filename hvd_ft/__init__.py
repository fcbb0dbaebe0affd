"""Fault-tolerant Horovod over MPI: a rank that dies is restarted, the others wait and carry on."""

import os

__version__ = "0.1.0"

if "HOROVOD_FT_INJECT" in os.environ:  # a worker that has a drill: its script begins
    from hvd_ft import native

    native.failpoint(native.Point.START)
