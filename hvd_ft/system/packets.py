"""A pair of sockets that carry whole packets, for a process that must never wait for its reader."""

import contextlib
import socket

MOST_BYTES = 1 << 18  # of a packet


class Packets:
    """One end.

    Args:
        end: of `packet_pair`, or its descriptor in another process; closed with this.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        end.setblocking(False)
        with contextlib.suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MOST_BYTES)

    def fileno(self) -> int:
        """Returns the descriptor to wait on."""
        return self._socket.fileno()

    def close(self) -> None:
        """Closes this end."""
        self._socket.close()

    def send(self, packet: bytes) -> bool:
        """Sends a packet now, or not at all.

        Returns:
            Whether it was sent: not if the other end reads too slowly or is gone, or if the packet
            has more than `MOST_BYTES`.
        """
        if len(packet) > MOST_BYTES:
            return False
        try:
            self._socket.send(packet)
        except OSError:
            return False
        return True

    def receive(self) -> bytes | None:
        """Returns the next packet; b"" if none is there; None if the other end is gone."""
        try:
            return self._socket.recv(MOST_BYTES) or None
        except BlockingIOError:
            return b""
        except OSError:
            return None


def packet_pair() -> tuple[socket.socket, socket.socket]:
    """Returns two connected sockets, one for each end."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
