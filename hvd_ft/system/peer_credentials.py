"""The user and process at the other end of a Unix socket."""

import socket
import struct
from typing import NamedTuple

_CREDENTIALS = struct.Struct("3i")  # pid, user, group


class Peer(NamedTuple):
    """A process and its user at the time when it connected."""

    pid: int
    user: int


def peer_of(connection: socket.socket) -> Peer:
    """Asks the kernel for the process at the other end."""
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(told)
    return Peer(pid, user)
