"""The event loop of every process that waits for several descriptors and deadlines."""

import contextlib
import selectors
import time
from collections.abc import Callable, Iterator
from typing import Protocol

_NEVER = float("inf")


class HasDescriptor(Protocol):
    """A socket, or anything else that can be waited for."""

    def fileno(self) -> int:
        """Returns the descriptor."""


class Watch:
    """The callbacks for a descriptor.

    Attributes:
        on_readable: called when there is something to read, or the other end is gone; None: no
            callback.
        on_writable: called when there is room to write, or the other end is gone; None: no
            callback.
    """

    def __init__(self, loop: "EventLoop", descriptor: int) -> None:
        self._loop = loop
        self._descriptor = descriptor
        self.on_readable: Callable[[], object] | None = None
        self.on_writable: Callable[[], object] | None = None

    def set(
        self,
        on_readable: Callable[[], object] | None = None,
        on_writable: Callable[[], object] | None = None,
    ) -> None:
        """Replaces both callbacks; without any the descriptor is not watched."""
        self.on_readable, self.on_writable = on_readable, on_writable
        self._loop._apply(self, self._descriptor)

    def end(self) -> None:
        """Ends the watch; call it before the descriptor is closed."""
        self.set()


class Timer:
    """A callback for a certain time.

    Attributes:
        at: the time, on the loop's clock; infinity: not set.
    """

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback = callback
        self.at = _NEVER

    def set(self, at: float) -> None:
        """Schedules the callback once, at that time or soon after it."""
        self.at = at

    def clear(self) -> None:
        """Cancels the callback."""
        self.at = _NEVER


class EventLoop:
    """Calls back when a descriptor is ready, and when a deadline has come.

    It uses poll(2): standard output can be a file, which epoll(7) refuses, and dup2(2) replaces
    descriptors without epoll's knowledge. A change to a watch or a timer (ended, or set anew) takes
    effect in the same round.

    Args:
        clock: returns seconds; time.monotonic() except in tests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.now = clock
        self._selector = selectors.PollSelector()
        self._watches: dict[int, Watch] = {}  # the active watch of each descriptor
        self._timers: list[Timer] = []

    def __enter__(self) -> "EventLoop":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drops all watches and timers."""
        self._selector.close()
        self._watches.clear()
        self._timers.clear()

    def watch(
        self,
        source: HasDescriptor | int,
        on_readable: Callable[[], object] | None = None,
        on_writable: Callable[[], object] | None = None,
    ) -> Watch:
        """Watches a descriptor.

        Args:
            source: the descriptor, or an object that has one; it has to stay open until
                `Watch.end`.
            on_readable: called when there is something to read.
            on_writable: called when there is room to write.

        Returns:
            The watch, whose callbacks can be replaced.
        """
        watch = Watch(self, source if isinstance(source, int) else source.fileno())
        watch.set(on_readable, on_writable)
        return watch

    def timer(self, callback: Callable[[], object]) -> Timer:
        """Returns a timer for the callback; it is not set yet."""
        timer = Timer(callback)
        self._timers.append(timer)
        return timer

    @contextlib.contextmanager
    def timeout(self, callback: Callable[[], object], at: float) -> Iterator[Timer]:
        """Schedules the callback for that time, unless the block ends before."""
        timer = self.timer(callback)
        timer.set(at)
        try:
            yield timer
        finally:
            self._timers.remove(timer)

    def run(self, until: Callable[[], bool]) -> None:
        """Runs rounds until `until()` is true; it is asked before each."""
        while not until():
            self.run_once()

    def run_once(self, most_seconds: float = _NEVER) -> None:
        """Waits for something to do, and does all of it.

        Args:
            most_seconds: how long to wait at most.
        """
        first = min((timer.at for timer in self._timers), default=_NEVER)
        left = min(most_seconds, max(0.0, first - self.now()))
        for key, mask in self._selector.select(None if left == _NEVER else left):
            watch: Watch = key.data
            if mask & selectors.EVENT_READ and watch.on_readable:
                watch.on_readable()
            if mask & selectors.EVENT_WRITE and watch.on_writable:
                watch.on_writable()
        now = self.now()
        for timer in list(self._timers):
            if timer.at <= now:
                timer.clear()
                timer.callback()

    def _apply(self, watch: Watch, descriptor: int) -> None:
        wanted = (selectors.EVENT_READ if watch.on_readable else 0) | (
            selectors.EVENT_WRITE if watch.on_writable else 0
        )
        known = self._watches.get(descriptor)
        if not wanted:
            if known is watch:
                del self._watches[descriptor]
                self._selector.unregister(descriptor)
            return
        self._watches[descriptor] = watch
        if known is None:
            self._selector.register(descriptor, wanted, watch)
        else:
            self._selector.modify(descriptor, wanted, watch)
