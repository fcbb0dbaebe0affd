"""The signals that ask a launcher, or an agent, to end its job."""

import contextlib
import signal
import socket
from collections.abc import Collection, Iterator
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PREEMPTION = (signal.SIGTERM, signal.SIGUSR1)  # with a grace: see Settings.grace_seconds

# From a shim to a child that has something to do before it ends. Not SIGTERM, which a scheduler may
# send to all processes of a job that is to write a checkpoint.
END_SIGNAL = signal.SIGUSR2
ASK_SIGNAL = signal.SIGUSR1  # to a checkpoint writer: a checkpoint is wanted now
RECORD_SIGNAL = signal.SIGUSR2  # from a user to hvdft run: a flight record is wanted
# Blocked until such a child has its handlers: its imports take longer than a job may last.
HELD_SIGNALS = (END_SIGNAL, ASK_SIGNAL)


class StopSignals:
    """The stop signals that this process has received, as a descriptor that can be waited for.

    Args:
        arriving: the pipe to which the interpreter writes signal numbers; does not block.
        numbers: the signals that count.
        others: signals that end nothing.

    Attributes:
        noticed: of the others, those that have arrived by the last look at `received`.
    """

    def __init__(
        self,
        arriving: socket.socket,
        numbers: Collection[signal.Signals] = STOP_SIGNALS,
        others: Collection[signal.Signals] = (),
    ) -> None:
        self._arriving = arriving
        self._numbers = numbers
        self._others = others
        self._received: list[signal.Signals] = []
        self.noticed: list[signal.Signals] = []

    def fileno(self) -> int:
        """Returns the descriptor, for a selector."""
        return self._arriving.fileno()

    @property
    def received(self) -> list[signal.Signals]:
        """All signals so far, in order; afterwards the descriptor is not readable."""
        with contextlib.suppress(BlockingIOError):
            while numbers := self._arriving.recv(64):
                self._received += [signal.Signals(n) for n in numbers if n in self._numbers]
                self.noticed += [signal.Signals(n) for n in numbers if n in self._others]
        return self._received


@contextlib.contextmanager
def stop_signals(
    more: Collection[signal.Signals] = (), noticed: Collection[signal.Signals] = ()
) -> Iterator[StopSignals]:
    """Collects stop signals, and others if wanted, instead of being ended by them.

    Args:
        more: others that end the job.
        noticed: others that do not.
    """
    numbers = (*STOP_SIGNALS, *more)
    arriving, theirs = socket.socketpair()
    with arriving, theirs:
        arriving.setblocking(False)
        theirs.setblocking(False)
        before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        # A signal that is ignored, as by nohup, stays ignored.
        heeded = [
            number for number in (*numbers, *noticed) if signal.getsignal(number) != signal.SIG_IGN
        ]
        handlers = {number: signal.signal(number, lambda *_: None) for number in heeded}
        try:
            yield StopSignals(arriving, numbers, noticed)
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(before)


@contextlib.contextmanager
def raised_stop_signal() -> Iterator[None]:
    """Ends the `with` block on a stop signal; further ones do not disturb the clean-up.

    Raises:
        SystemExit: A stop signal was received; the code is 128 + its number.
    """

    def stop(number: int, _frame: FrameType | None) -> None:
        for each in heeded:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    # A signal that is ignored, as by nohup, stays ignored.
    heeded = [number for number in STOP_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
