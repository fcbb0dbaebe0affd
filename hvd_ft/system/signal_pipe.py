"""Signals as a descriptor that can be polled beside others, or as a call in another thread."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator

_CHUNK_BYTES = 4096


class SignalPipe:
    """A pipe that is readable when this process has received one of these signals.

    SIGCHLD also covers orphans, for which there is no pidfd.

    Args:
        numbers: of the signals, which have no other effect from now on.
    """

    def __init__(self, numbers: Iterable[int]) -> None:
        self._reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, lambda number, frame: None)

    def fileno(self) -> int:
        """Returns the descriptor to wait on."""
        return self._reader

    def take(self) -> set[int]:
        """Returns the signals received since the last call."""
        with contextlib.suppress(BlockingIOError):
            return set(os.read(self._reader, _CHUNK_BYTES))
        return set()


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
