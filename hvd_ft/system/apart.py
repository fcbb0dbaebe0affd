"""Calls that may take for ever, such as those on a network filesystem, apart from an event loop."""

import contextlib
import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from hvd_ft.system.event_loop import EventLoop

T = TypeVar("T")


class Apart(Generic[T]):
    """A call in a separate thread, for which nothing has to wait.

    Args:
        act: the function to call.
        ended: called in that thread afterwards.
    """

    def __init__(self, act: Callable[[], T], ended: Callable[[], object] = lambda: None) -> None:
        self._act, self._ended = act, ended
        self._value: list[T] = []
        self._error: BaseException | None = None
        self.has_ended = False
        # Not waited for at the process's end either.
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self._value.append(self._act())
        except BaseException as error:
            self._error = error
        finally:
            self.has_ended = True
            self._ended()

    @property
    def result(self) -> T:
        """The call's result, once it has ended; raises the call's exception."""
        if self._error is not None:
            raise self._error
        return self._value[0]


class Call(Generic[T]):
    """A call in a separate thread that wakes an event loop.

    Args:
        loop: the loop that is woken when the call is done.
        act: the function to call. It may raise an OSError.
        done: called in the loop afterwards, unless `forget` was called.
    """

    def __init__(
        self, loop: EventLoop, act: Callable[[], T], done: Callable[[], object] = lambda: None
    ) -> None:
        self._then = done
        self._ended, end = os.pipe2(os.O_CLOEXEC)
        self._watch = loop.watch(self._ended, self._on_done)
        self.is_done = False
        self._apart = Apart(act, lambda: os.close(end))

    def _on_done(self) -> None:
        self.forget()
        self.is_done = True
        self._then()

    def forget(self) -> None:
        """Does not call back any more; the call itself continues as long as it takes."""
        self._watch.end()
        with contextlib.suppress(OSError):
            os.close(self._ended)
        self._ended = -1

    @property
    def result(self) -> T:
        """The call's result, once `is_done`; raises the call's exception."""
        return self._apart.result


def call_apart(
    loop: EventLoop, act: Callable[[], T], seconds: float, stopped: Callable[[], bool]
) -> T:
    """Runs the loop until a call is done.

    Args:
        loop: that runs meanwhile.
        act: what is called.
        seconds: the limit.
        stopped: returns whether nobody wants to wait any more.

    Raises:
        TimeoutError: it was not done in time, or is not waited for any more. It goes on.
    """
    call, deadline = Call(loop, act), loop.now() + seconds
    while not call.is_done:
        left = deadline - loop.now()
        if left <= 0 or stopped():
            call.forget()
            raise TimeoutError(f"it has not answered for {seconds:g} s")
        loop.run_once(left)
    return call.result
