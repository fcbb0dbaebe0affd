"""Hands an order and descriptors to another process of ours through a socket.

The order is one JSON message. The descriptors are standard streams, and where the receiver has to
watch the sender a pidfd: unlike a process id it never means another process, whenever the sender
dies. The socket lies in a directory that only the user can enter; in addition the user at its other
end is checked.
"""

import contextlib
import os
import socket
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

from hvd_ft.system.peer_credentials import peer_of
from hvd_ft.system.wire import HEADER, Message, convert, length_of, pack, unpack

TIMEOUT_SECONDS = 2.0  # limit for either side to send its part
STREAMS = 3
Kind = TypeVar("Kind")


def send_order(end: socket.socket, order: Message, descriptors: Sequence[int]) -> None:
    """Sends an order.

    Args:
        end: a connected, blocking Unix stream socket.
        order: JSON.
        descriptors: as many as the receiver expects: those of stdin, stdout and stderr first.

    Raises:
        OSError: the other end is gone, or does not read within the timeout.
    """
    data = pack(order)
    # Descriptors come with the first bytes; the rest may take several writes.
    socket.send_fds(end, [data[: HEADER.size]], list(descriptors))
    end.sendall(data[HEADER.size :])


def receive_order(
    end: socket.socket, kind: type[Kind], count: int = STREAMS
) -> tuple[Kind, list[int]]:
    """Receives an order of `send_order`, and nothing of what follows it.

    Args:
        end: a connected, blocking Unix stream socket; its timeout is for all of the order.
        kind: of the order, a msgspec.Struct.
        count: how many descriptors come with it.

    Returns:
        The order, and the descriptors, which the caller now owns.

    Raises:
        OSError: the other end is gone, is late, or does not send such an order.
    """
    limit = end.gettimeout()
    header, descriptors, _, _ = socket.recv_fds(end, HEADER.size, count)
    try:
        if len(header) != HEADER.size or len(descriptors) != count:
            raise ConnectionError("this is no order")
        body = _receive(end, length_of(header), limit)
        end.settimeout(limit)
        return convert(unpack(body), kind), descriptors
    except (OSError, ValueError) as error:
        for descriptor in descriptors:
            os.close(descriptor)
        raise error if isinstance(error, OSError) else ConnectionError(str(error)) from error


def _receive(end: socket.socket, length: int, limit: float | None) -> bytes:
    deadline = None if limit is None else time.monotonic() + limit
    body = bytearray()
    while len(body) < length:
        if deadline is not None:
            end.settimeout(max(deadline - time.monotonic(), 1e-3))
        more = end.recv(length - len(body))
        if not more:
            raise ConnectionResetError("the order ends early")
        body += more
    return bytes(body)


def take_order(
    connection: socket.socket, kind: type[Kind], count: int = STREAMS
) -> tuple[Kind, list[int]] | None:
    """Takes the order that has to come over a connection within TIMEOUT_SECONDS.

    Args:
        connection: a Unix stream socket, just accepted; closed if there is no order.
        kind: of the order, a msgspec.Struct.
        count: how many descriptors come with it.

    Returns:
        The order and the descriptors, which the caller now owns; None if the other end is another
        user's, or there is no proper order.
    """
    connection.settimeout(TIMEOUT_SECONDS)
    try:
        check_peer(connection)
        taken = receive_order(connection, kind, count)
    except OSError:
        connection.close()
        return None
    connection.settimeout(None)
    return taken


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
