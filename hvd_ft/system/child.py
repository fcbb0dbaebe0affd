"""Prepares a new process before it executes the user's program."""

import contextlib
import signal

from hvd_ft import native


def begin_child() -> None:
    """Runs in the new process before exec: resets signals, and makes it die with its parent."""
    default_signals()
    native.die_with_parent()


def default_signals() -> None:
    """Resets ignored, handled and blocked signals; processes started from here inherit that."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
