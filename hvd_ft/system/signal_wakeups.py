"""Signals wake a thread that waits outside of Python, where no handler runs."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def signals_wake(wake: Callable[[], None]) -> Iterator[None]:
    """Calls `wake` in another thread whenever a signal has arrived; use it in the main thread.

    A signal that comes just before the main thread waits in a C function does not interrupt it, and
    Python runs a handler only afterwards. The interpreter has written to the pipe by then.

    Args:
        wake: ends the wait that the main thread is in or, if it is in none, its next one.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def pass_on() -> None:
        while os.read(reader, 64):
            wake()

    thread = threading.Thread(target=pass_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writer)
        thread.join()
        os.close(reader)
