"""Signals as a descriptor that can be polled beside others."""

import contextlib
import os
import signal
from collections.abc import Iterable

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
