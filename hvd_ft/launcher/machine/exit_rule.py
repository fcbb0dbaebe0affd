"""The exit code of a job that was asked to end by a signal. Pure."""

import signal
from collections.abc import Sequence

from hvd_ft.system.stop_signals import PREEMPTION

PREEMPTED = 128 + signal.SIGTERM


def code_after_signal(received: Sequence[signal.Signals], own: int | None, *, grace: bool) -> int:
    """Returns the exit code of a job whose launcher has received signals.

    A job that had a grace, and came to its end within it, is not to be started again as one that
    was preempted: it has a code of its own.

    Args:
        received: the signals, at least one.
        own: the code that the job's agents have reported; None: they have not.
        grace: whether SIGTERM and SIGUSR1 leave the job time for a checkpoint.
    """
    first = received[0]
    if grace and first in PREEMPTION and own is not None:
        return own
    return PREEMPTED if first == signal.SIGUSR1 else 128 + first
