"""Accepts connections, and hands over those whose other end has proved that it knows the job's key.

It never waits for a stranger, reads at most one short message from it, and gives each only a short
time (strangers.py).
"""

import functools
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hvd_ft.job import proof
from hvd_ft.job.strangers import Strangers
from hvd_ft.system.event_loop import EventLoop, Watch
from hvd_ft.system.listener import Listener
from hvd_ft.system.wire import OneFrame, pack

SECONDS = 2.0  # for a stranger to prove that it knows the key
MOST_STRANGERS = 256
_NONCE_BYTES = 32


@dataclass
class _Connection:
    socket: socket.socket
    nonce: str
    frame: OneFrame
    watch: Watch


class Authenticator:
    """The guard of a listening socket.

    Args:
        loop: waits for connections and messages, and keeps the time.
        listener: the socket; closed with this object.
        key: of the job.
        on_proven: called with each connection whose other end knows the key; it is blocking.
    """

    def __init__(
        self,
        loop: EventLoop,
        listener: socket.socket,
        key: str,
        on_proven: Callable[[socket.socket], object],
    ) -> None:
        self._loop = loop
        self._key = key
        self._on_proven = on_proven
        self._rule = Strangers(MOST_STRANGERS, SECONDS)
        self._connections: dict[int, _Connection] = {}
        self._number = 0
        self._late = loop.timer(self._end_late)
        self._listener = Listener(loop, listener, self._greet, self._make_room)

    @property
    def strangers(self) -> int:
        """The number of connections that have proved nothing yet."""
        return len(self._connections)

    def close(self) -> None:
        """Listens no more, and ends all strangers."""
        self._listener.close()
        for number in list(self._connections):
            self._end(number)

    def _greet(self, connection: socket.socket, address: Any) -> None:
        connection.setblocking(False)
        self._number += 1
        number, nonce = self._number, secrets.token_hex(_NONCE_BYTES)
        try:
            connection.sendall(pack({"nonce": nonce}))  # the socket's buffer is empty
        except OSError:
            connection.close()
            return
        victim = self._rule.arrived(number, address[0], self._loop.now())
        watch = self._loop.watch(connection, functools.partial(self._hear, number))
        frame = OneFrame(proof.MOST_BYTES)
        self._connections[number] = _Connection(connection, nonce, frame, watch)
        if victim is not None:
            self._end(victim)
        self._late.set(self._rule.next_late)

    def _hear(self, number: int) -> None:
        one = self._connections[number]
        try:
            data = one.socket.recv(one.frame.wants)
            body = one.frame.add(data)
            if body is not None:
                one.socket.sendall(pack(proof.confirm(self._key, body, one.nonce)))
        except BlockingIOError:
            return
        except (OSError, ValueError):  # an error of the network, or not one of the job
            self._end(number)
            return
        if body is not None:
            self._forget(number)
            one.socket.setblocking(True)
            self._on_proven(one.socket)
        elif not data:
            self._end(number)

    def _make_room(self) -> None:
        """Frees a descriptor, because the process has none left."""
        if (number := self._rule.least_welcome()) is not None:
            self._end(number)

    def _end_late(self) -> None:
        for number in self._rule.late(self._loop.now()):
            self._end(number)
        self._late.set(self._rule.next_late)

    def _end(self, number: int) -> None:
        self._forget(number).close()

    def _forget(self, number: int) -> socket.socket:
        one = self._connections.pop(number)
        self._rule.left(number)
        one.watch.end()
        return one.socket
