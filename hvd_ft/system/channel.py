"""Messages between two processes over a connected socket: a stream of JSON objects (wire.py)."""

import socket

from hvd_ft.system.wire import MOST_BYTES, Frames, Message, OneFrame, pack, unpack

_READ_BYTES = 1 << 16


class Channel:
    """One end of a socketpair, or of another connection.

    Args:
        end: a connected, blocking stream socket; closed with the channel.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._frames = Frames()

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
        self._socket.sendall(pack(message))

    def receive_first(self) -> Message | None:
        """Waits for the first message, and leaves what follows it to `receive`.

        Returns: The message; None if the other end is gone.

        Raises:
            OSError: it does not come in the socket's time.
            ValueError: the bytes are not a message.
        """
        frame = OneFrame(MOST_BYTES)
        while data := self._socket.recv(frame.wants):
            if (body := frame.add(data)) is not None:
                return unpack(body)
        return None

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
        self._frames.add(data)
        messages = []
        while (body := self._frames.next()) is not None:
            messages.append(unpack(body))
        return messages


__all__ = ["Channel", "Message"]
