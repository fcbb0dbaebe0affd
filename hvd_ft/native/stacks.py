"""The worker's end of the pipe through which it sends its Python stacks (agent/stacks.py)."""

import contextlib
import faulthandler
import os
import signal

# One that scripts, Slurm and TensorFlow leave alone.
SIGNAL = signal.SIGRTMIN + 5
VARIABLE = "HOROVOD_FT_STACKS"


def offer_stacks() -> None:
    """From now on this process writes its stacks when its agent asks for them."""
    path = os.environ.get(VARIABLE)
    if path:
        # It is never read again here; a writer that nobody reads must not wait.
        with contextlib.suppress(OSError):
            end = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
            faulthandler.register(SIGNAL, file=end, all_threads=True)
