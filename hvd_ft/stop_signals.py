"""The signals that ask a launcher, or an agent, to end its job."""

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def stop_signals() -> Iterator[tuple[list[int], int]]:
    """Collects stop signals in a list; the descriptor becomes readable with each."""
    received: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    old_descriptor = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    # A signal that is ignored, as by nohup, stays ignored.
    heeded = [number for number in STOP_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    old_handlers = {number: signal.signal(number, note) for number in heeded}
    try:
        yield received, reader
    finally:
        for number, handler in old_handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(old_descriptor)
        os.close(reader)
        os.close(writer)


@contextlib.contextmanager
def signal_socket() -> Iterator[socket.socket]:
    """Yields a socket on which the numbers of stop signals arrive."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    handlers = {number: signal.signal(number, lambda *_: None) for number in STOP_SIGNALS}
    before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    try:
        yield ours
    finally:
        signal.set_wakeup_fd(before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        ours.close()
        theirs.close()
