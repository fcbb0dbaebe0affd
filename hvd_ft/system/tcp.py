"""Keep-alive and time-out options that reveal a dead peer of a TCP connection."""

import socket


def set_timeouts(connection: socket.socket, seconds: float) -> None:
    """Has a connection end with an error when the other host does not answer.

    The kernel asks an idle connection's other end four times within the limit. Without this it
    would ask after two hours, and repeat for a quarter of an hour what nobody acknowledges.

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
