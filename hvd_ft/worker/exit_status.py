"""How a worker's script ends: by itself, which its agent is told, or by a failure."""

import atexit
import os
import sys
from functools import cache
from types import TracebackType

from hvd_ft import native
from hvd_ft.native.types import Point


@cache
def prepare_exit(worker: native.Worker) -> None:
    """Has the agent told when the script ends by itself: by its end or sys.exit.

    An uncaught exception, a signal and os._exit are failures, after which it is restarted.

    Args:
        worker: this process's attachment to its agent.
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
    atexit.register(lambda: native.failpoint(Point.EXIT, worker.cursor()))
