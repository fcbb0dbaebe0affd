"""Keep-alive and time-out options that reveal a dead peer of a TCP connection."""

import socket


def set_timeouts(connection: socket.socket, seconds: float) -> None:
    """Makes a connection fail when the other host does not answer.

    The kernel probes an idle connection four times within the limit. By default it would probe
    after two hours, and retransmit unacknowledged data for a quarter of an hour.

    Args:
        connection: a TCP socket, connected or not.
        seconds: the limit, 1 or more.
    """
    interval = max(1, int(seconds / 4))
    for option, value in (
        (socket.TCP_USER_TIMEOUT, int(seconds * 1000)),
        (socket.TCP_KEEPIDLE, interval),
        (socket.TCP_KEEPINTVL, interval),
        (socket.TCP_KEEPCNT, 4),
        (socket.TCP_NODELAY, 1),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
