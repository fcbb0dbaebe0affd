"""How a user's process is started."""

import contextlib
import signal

from hvd_ft import native


def begin_child() -> None:
    """Runs in the new process before exec: the default signals, and dying with its parent."""
    default_signals()
    native.die_with_parent()


def default_signals() -> None:
    """Ends what was ignored, handled or blocked; what this process starts inherits that."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
