"""Tells the agent when the worker's script ends by itself; every other end is a failure."""

import atexit
import io
import os
import sys
from functools import cache
from types import TracebackType

from hvd_ft import native
from hvd_ft.native.types import Point


@cache
def prepare_exit(worker: native.Worker) -> None:
    """Reports to the agent when the script ends by itself: at its end or by sys.exit.

    An uncaught exception, a signal and os._exit are failures, after which it is restarted.

    Args:
        worker: this process's attachment to its agent.
    """
    previous = sys.excepthook

    def die(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        previous(kind, error, trace)
        # torch.distributed's hook, above this one, collects what it prints and would write it.
        if isinstance(sys.stderr, io.StringIO) and sys.__stderr__ is not None:
            sys.__stderr__.write(sys.stderr.getvalue())
            sys.__stderr__.flush()
        sys.stdout.flush()
        sys.stderr.flush()
        # An ordinary end would continue to Horovod's shutdown: this rank would leave the others.
        os._exit(1)

    sys.excepthook = die
    # Horovod registers its shutdown later, so it runs earlier: a worker that dies in it has not
    # ended yet.
    atexit.register(worker.orderly_exit)
    atexit.register(lambda: native.failpoint(Point.EXIT, worker.cursor()))
