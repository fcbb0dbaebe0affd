"""The worker's end of the pipe for its Python stacks (agent/stacks.py)."""

import contextlib
import faulthandler
import os
import signal

# A signal that scripts, Slurm and TensorFlow do not use.
SIGNAL = signal.SIGRTMIN + 5
VARIABLE = "HOROVOD_FT_STACKS"


def offer_stacks() -> None:
    """Makes this process write its stacks whenever its agent asks for them."""
    path = os.environ.get(VARIABLE)
    if path:
        # This process never reads it; without a reader a writer must not wait.
        with contextlib.suppress(OSError):
            end = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
            faulthandler.register(SIGNAL, file=end, all_threads=True)
