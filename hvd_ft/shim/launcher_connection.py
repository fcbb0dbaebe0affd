"""One connection of a shim to the launcher, on which both prove that they know the key."""

import contextlib
import errno
import os
import secrets
import socket
from collections.abc import Callable

from hvd_ft.job import proof
from hvd_ft.job.lifeline_messages import FromLauncher, FromShim, parse_from_launcher, to_wire
from hvd_ft.system.channel import Channel
from hvd_ft.system.event_loop import EventLoop, Watch
from hvd_ft.system.tcp import set_timeouts
from hvd_ft.system.wire import OneFrame, pack

_SEND_SECONDS = 0.8  # less than the margin of an act lease: the shim has to stop processes in time
_KEY_BYTES = 32


class LauncherConnection:
    """The connection. It never blocks, but to send for a moment.

    Args:
        loop: keeps it going.
        key: that both sides know.
        on_open: called when the launcher has proved that it is one.
        on_order: called with each of its messages.
        on_failed: called with the reason when the connection cannot be made, or has ended.
    """

    def __init__(
        self,
        loop: EventLoop,
        key: str,
        *,
        on_open: Callable[[], None],
        on_order: Callable[[FromLauncher], None],
        on_failed: Callable[[OSError], None],
    ) -> None:
        self._loop = loop
        self._key = key
        self._on_open = on_open
        self._on_order = on_order
        self._on_failed = on_failed
        self._socket: socket.socket | None = None
        self._watch: Watch | None = None  # of the socket
        self._frame = OneFrame(proof.MOST_BYTES)  # of what the launcher says before it is open
        self._nonce = ""  # once our proof is sent
        self._channel: Channel | None = None  # once the launcher has sent its own

    def begin(self, host: str, port: int, lease_seconds: float) -> None:
        """Begins to connect.

        Args:
            host: of the launcher, as an address.
            port: of the launcher.
            lease_seconds: after which an unreachable launcher ends the connection.

        Raises:
            OSError: it cannot be reached.
        """
        self._socket = socket.socket()
        self._socket.setblocking(False)
        set_timeouts(self._socket, lease_seconds)
        code = self._socket.connect_ex((host, port))
        if code not in (0, errno.EINPROGRESS):
            raise OSError(code, os.strerror(code))
        self._watch = self._loop.watch(self._socket, on_writable=self._on_connected)

    @property
    def is_open(self) -> bool:
        """Whether messages can be sent."""
        return self._channel is not None

    def send(self, message: FromShim) -> None:
        """Sends a message over an open connection.

        Raises:
            OSError: it has ended.
        """
        assert self._channel is not None
        self._channel.send(to_wire(message))

    def finish(self) -> None:
        """Ends what is sent: the launcher hears so even if it has just sent something."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Closes the connection, without a call."""
        if self._watch is not None:
            self._watch.end()
        if self._socket is not None:
            self._socket.close()
        self._watch = self._socket = self._channel = None

    def _on_connected(self) -> None:
        assert self._socket is not None
        assert self._watch is not None
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._on_failed(OSError(code, os.strerror(code)))
            return
        self._socket.settimeout(_SEND_SECONDS)
        self._watch.set(on_readable=self._on_readable)

    def _on_readable(self) -> None:
        orders: list[FromLauncher] = []
        try:
            if self._channel is None:
                self._greet()
            elif (received := self._channel.receive()) is not None:
                orders = list(map(parse_from_launcher, received))
            else:
                raise _closed()
        except (OSError, ValueError) as error:
            self._on_failed(error if isinstance(error, OSError) else OSError(str(error)))
            return
        for order in orders:
            self._on_order(order)

    def _greet(self) -> None:
        """Reads what the launcher says before both have proved that they know the key."""
        assert self._socket is not None
        data = self._socket.recv(self._frame.wants)
        if not data:
            raise _closed()
        body = self._frame.add(data)
        if body is None:
            return
        if not self._nonce:
            self._nonce = secrets.token_hex(_KEY_BYTES)
            self._socket.sendall(pack(proof.claim(self._key, body, self._nonce)))
            self._frame = OneFrame(proof.MOST_BYTES)
            return
        proof.check_confirmation(self._key, body, self._nonce)
        self._channel = Channel(self._socket)
        self._on_open()


def _closed() -> OSError:
    return ConnectionResetError(errno.ECONNRESET, "the launcher has closed the line")
