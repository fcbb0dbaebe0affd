"""Accepts connections from an event loop, also when the process has no descriptor left."""

import errno
import socket
from collections.abc import Callable
from typing import Any

from hvd_ft.system.event_loop import EventLoop

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_SECONDS = 0.1


class Listener:
    """A socket that accepts.

    A connection that cannot be accepted for lack of descriptors stays in the kernel's queue, where
    it would make the socket readable for ever: so for a short time the socket is not watched.

    Args:
        loop: waits for connections.
        end: a listening socket; closed with this object.
        on_connection: called with each connection, which is blocking, and its address.
        on_exhausted: called when there is no descriptor for the next one.
    """

    def __init__(
        self,
        loop: EventLoop,
        end: socket.socket,
        on_connection: Callable[[socket.socket, Any], object],
        on_exhausted: Callable[[], object] = lambda: None,
    ) -> None:
        end.setblocking(False)
        self._loop = loop
        self._socket = end
        self._on_connection = on_connection
        self._on_exhausted = on_exhausted
        self._watch = loop.watch(end, self._accept)
        self._again = loop.timer(self._resume)

    @property
    def is_paused(self) -> bool:
        """Whether it waits for descriptors."""
        return self._watch.on_readable is None

    def close(self) -> None:
        """Listens no more."""
        self._again.clear()
        self._watch.end()
        self._socket.close()

    def _accept(self) -> None:
        try:
            connection, address = self._socket.accept()
        except OSError as error:  # or it has gone meanwhile
            if error.errno in _EXHAUSTED:
                self._watch.set()
                self._again.set(self._loop.now() + _PAUSE_SECONDS)
                self._on_exhausted()
            return
        connection.setblocking(True)
        self._on_connection(connection, address)

    def _resume(self) -> None:
        self._watch.set(self._accept)
