"""Hands an order and standard streams to another process of ours through a socket.

The order is one JSON message. The socket lies in a directory that only the user can enter; in
addition the user at its other end is checked.
"""

import contextlib
import json
import os
import socket
import struct
from collections.abc import Iterator, Sequence

from hvd_ft.system.channel import Message
from hvd_ft.system.peer_credentials import peer_of

TIMEOUT_SECONDS = 2.0  # limit for either side to send its part
STREAMS = 3
_HEADER = struct.Struct("!I")
_MAXIMUM_BYTES = 16 << 20


def send_order(end: socket.socket, order: Message, streams: Sequence[int]) -> None:
    """Sends an order.

    Args:
        end: a connected, blocking Unix stream socket.
        order: JSON.
        streams: descriptors of stdin, stdout and stderr.

    Raises:
        OSError: the other end is gone, or does not read within the timeout.
    """
    body = json.dumps(order).encode("ascii")
    # Descriptors come with the first bytes; the rest may take several writes.
    socket.send_fds(end, [_HEADER.pack(len(body))], list(streams))
    end.sendall(body)


def receive_order(end: socket.socket) -> tuple[Message, list[int]]:
    """Receives an order of `send_order`.

    Args:
        end: a connected, blocking Unix stream socket.

    Returns:
        The order, and the streams' descriptors, which the caller now owns.

    Raises:
        OSError: the other end is gone, is late, or does not send an order.
    """
    header, streams, _, _ = socket.recv_fds(end, _HEADER.size, STREAMS)
    try:
        if len(header) != _HEADER.size or len(streams) != STREAMS:
            raise ConnectionError("this is no order")
        (length,) = _HEADER.unpack(header)
        if length > _MAXIMUM_BYTES:
            raise ConnectionError("this is no order")
        body = b""
        while len(body) < length:
            more = end.recv(length - len(body))
            if not more:
                raise ConnectionResetError("the order ends early")
            body += more
        return json.loads(body), streams
    except (OSError, ValueError) as error:
        for stream in streams:
            socket.close(stream)
        raise error if isinstance(error, OSError) else ConnectionError(str(error)) from error


def accept_order(listener: socket.socket) -> tuple[socket.socket, Message, list[int]] | None:
    """Takes a connection and its order, which have to come within TIMEOUT_SECONDS.

    Args:
        listener: a Unix stream socket with a connection to take.

    Returns:
        The connection, the order and the streams' descriptors, which the caller now owns; None if
        it is another user's, or there is no proper order.
    """
    with contextlib.suppress(OSError):
        connection, _ = listener.accept()
        connection.settimeout(TIMEOUT_SECONDS)
        try:
            check_peer(connection)
            order, streams = receive_order(connection)
        except OSError:
            connection.close()
            return None
        connection.settimeout(None)
        return connection, order, streams
    return None


def check_peer(connection: socket.socket) -> None:
    """Raises PermissionError unless the process at the other end belongs to the same user."""
    user = peer_of(connection).user
    if user != os.geteuid():
        raise PermissionError(f"user {user} is at the other end")


@contextlib.contextmanager
def socket_path(directory: str, name: str) -> Iterator[str]:
    """Yields a path of a socket that is short enough for connect(2).

    It may have only 107 bytes, and the directory's path may be longer.
    """
    folder = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{name}"
    finally:
        os.close(folder)
