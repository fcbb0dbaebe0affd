"""Messages between agent and shim: JSON objects with a length before each."""

import json
import socket
import struct
from typing import Any

Message = dict[str, Any]

_HEADER = struct.Struct("!I")
_MAXIMUM_BYTES = 16 << 20  # an environment and a command line take a few MiB at most
_READ_BYTES = 1 << 16


class Channel:
    """One end of a socketpair.

    Args:
        end: a connected, blocking stream socket; closed with the channel.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._received = bytearray()

    def fileno(self) -> int:
        """Returns the descriptor to wait on: readable when `receive` has something to read."""
        return self._socket.fileno()

    def close(self) -> None:
        """Closes this end; the other one sees the end of the stream."""
        self._socket.close()

    def send(self, message: Message) -> None:
        """Sends a message.

        Raises:
            OSError: the other end is gone.
        """
        body = json.dumps(message).encode("ascii")
        self._socket.sendall(_HEADER.pack(len(body)) + body)

    def receive(self) -> list[Message] | None:
        """Reads once from the socket, waiting if nothing is there.

        Returns: The complete messages, possibly none; None if the other end is gone.

        Raises:
            ValueError: the bytes are not a message.
        """
        try:
            data = self._socket.recv(_READ_BYTES)
        except ConnectionResetError:
            data = b""
        if not data:
            return None
        self._received += data
        messages = []
        while (body := self._next_body()) is not None:
            message = json.loads(body)
            if not isinstance(message, dict):
                raise ValueError("a message is not a JSON object")
            messages.append(message)
        return messages

    def _next_body(self) -> bytes | None:
        if len(self._received) < _HEADER.size:
            return None
        (length,) = _HEADER.unpack_from(self._received)
        if length > _MAXIMUM_BYTES:
            raise ValueError(f"a message of {length} bytes is too long")
        end = _HEADER.size + length
        if len(self._received) < end:
            return None
        body = bytes(self._received[_HEADER.size : end])
        del self._received[:end]
        return body
