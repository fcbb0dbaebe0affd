"""A listener without descriptors: it does not spin, and accepts when there are some again."""

import resource
import socket

from hvd_ft.system.event_loop import EventLoop
from hvd_ft.system.listener import Listener


def test_without_a_descriptor_it_waits_and_then_accepts() -> None:
    now = [0.0]
    accepted: list[socket.socket] = []
    exhausted: list[bool] = []
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with EventLoop(lambda: now[0]) as loop, socket.create_server(("127.0.0.1", 0)) as end:
        listener = Listener(
            loop,
            end,
            lambda connection, _: accepted.append(connection),
            lambda: exhausted.append(True),
        )
        with socket.create_connection(end.getsockname()) as client:
            with socket.socket() as free:
                resource.setrlimit(resource.RLIMIT_NOFILE, (free.fileno(), limits[1]))
            try:
                loop.run_once()
                assert listener.is_paused
                for _ in range(3):  # no descriptor, and no look at the socket
                    loop.run_once(0)
                assert exhausted == [True]
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            now[0] = 1.0
            loop.run_once(0)
            assert not listener.is_paused
            loop.run(until=lambda: bool(accepted))
            assert accepted[0].getpeername() == client.getsockname()
            assert accepted[0].getblocking()
            accepted[0].close()
        listener.close()
