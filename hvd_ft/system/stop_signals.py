"""The signals that ask a launcher, or an agent, to end its job."""

import contextlib
import signal
import socket
from collections.abc import Iterator

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """The stop signals that this process has received, as a descriptor that can be waited for.

    Args:
        arriving: the pipe to which the interpreter writes signal numbers; does not block.
    """

    def __init__(self, arriving: socket.socket) -> None:
        self._arriving = arriving
        self._received: list[signal.Signals] = []

    def fileno(self) -> int:
        """Returns the descriptor, for a selector."""
        return self._arriving.fileno()

    @property
    def received(self) -> list[signal.Signals]:
        """All signals so far, in order; afterwards the descriptor is not readable."""
        with contextlib.suppress(BlockingIOError):
            while numbers := self._arriving.recv(64):
                self._received += [signal.Signals(n) for n in numbers if n in STOP_SIGNALS]
        return self._received


@contextlib.contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """Collects stop signals instead of being ended by them."""
    arriving, theirs = socket.socketpair()
    with arriving, theirs:
        arriving.setblocking(False)
        theirs.setblocking(False)
        before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        # A signal that is ignored, as by nohup, stays ignored.
        heeded = [number for number in STOP_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        handlers = {number: signal.signal(number, lambda *_: None) for number in heeded}
        try:
            yield StopSignals(arriving)
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(before)
