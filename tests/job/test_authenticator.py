"""Who listens for the processes of a job, over real sockets: anybody can connect to it."""

import select
import socket
from collections.abc import Callable, Iterator

import pytest

from hvd_ft.job.authenticator import MOST_STRANGERS, SECONDS, Authenticator
from hvd_ft.job.proof import MOST_BYTES, claim
from hvd_ft.system.event_loop import EventLoop
from hvd_ft.system.wire import HEADER, OneFrame, pack

KEY = "k" * 64


class Served:
    """An authenticator, its clock, and whom it has let in."""

    def __init__(self) -> None:
        self.now = 0.0
        self.loop = EventLoop(lambda: self.now)
        listener = socket.create_server(("127.0.0.1", 0), backlog=1000)
        self.address = listener.getsockname()
        self.let_in: list[socket.socket] = []
        self.guard = Authenticator(self.loop, listener, KEY, self.let_in.append)

    def connect(self) -> socket.socket:
        end = socket.create_connection(self.address)
        end.settimeout(20)
        return end

    def serve(self, until: Callable[[], object]) -> None:
        while not until():
            self.loop.run_once(0.01)

    def strangers(self, count: int) -> list[socket.socket]:
        """Connects so many, one after the other, and hears the last one greeted."""
        ends = []
        for _ in range(count):
            ends.append(self.connect())
            self.serve(lambda: readable(ends[-1]))
        return ends

    def is_ended(self, end: socket.socket) -> bool:
        """Returns whether a connection is closed, after what the launcher says first."""
        try:
            return readable(end) and not end.recv(1 << 16)
        except ConnectionError:
            return True


def readable(end: socket.socket) -> bool:
    return bool(select.select([end], [], [], 0)[0])


def body_of(end: socket.socket) -> bytes:
    frame = OneFrame(MOST_BYTES)
    while (body := frame.add(end.recv(frame.wants))) is None:
        pass
    return body


@pytest.fixture
def served() -> Iterator[Served]:
    one = Served()
    yield one
    one.guard.close()
    one.loop.close()
    for end in one.let_in:
        end.close()


def prove(served: Served, end: socket.socket) -> None:
    served.serve(lambda: readable(end))
    end.sendall(pack(claim(KEY, body_of(end), "nonce")))
    before = len(served.let_in)
    served.serve(lambda: len(served.let_in) > before or served.is_ended(end))
    assert len(served.let_in) > before, "sent away"


def test_who_knows_the_key_is_let_in_with_what_it_says_next(served: Served) -> None:
    with served.connect() as end:
        served.serve(lambda: readable(end))
        end.sendall(pack(claim(KEY, body_of(end), "nonce")) + b"and more")
        served.serve(lambda: served.let_in)
        assert served.let_in[0].recv(100) == b"and more"
        assert served.guard.strangers == 0


DEEP = b"[" * 100_000


@pytest.mark.parametrize(
    "said",
    [
        HEADER.pack(len(DEEP)) + DEEP,
        HEADER.pack(4000) + b"[" * 4000,
        HEADER.pack(4096) + b'{"nonce":' + b"[" * 4087,
        HEADER.pack(MOST_BYTES + 1) + b" " * (MOST_BYTES + 1),
        HEADER.pack(0),
        b"\xff" * 64,
        b"GET / HTTP/1.1\r\n\r\n",
        pack({"nonce": "n", "proof": "0" * 64}),
        pack({"nonce": "n", "proof": "é"}),
        pack({"nonce": "n" * 129, "proof": "0" * 64}),
        pack({"proof": 7, "nonce": None}),
        pack({"rank": 0, "host": "n0", "generation": 0, "orphaned": False}),
    ],
)
def test_a_stranger_is_sent_away_whatever_it_says(served: Served, said: bytes) -> None:
    with served.connect() as end:
        end.sendall(said)
        served.serve(lambda: served.is_ended(end))
    with served.connect() as end:  # and nothing has happened to the others
        prove(served, end)


def test_a_stranger_that_announces_too_much_is_sent_away_at_once(served: Served) -> None:
    """Nothing of it is awaited, although its time is not over: the clock stands still."""
    with served.connect() as long, served.connect() as end:
        long.sendall(HEADER.pack(MOST_BYTES + 1))
        prove(served, end)  # what was there before it has been read
        assert served.guard.strangers == 0


def test_a_stranger_that_says_nothing_or_half_of_something_has_little_time(
    served: Served,
) -> None:
    silent, slow = served.strangers(2)
    slow.sendall(HEADER.pack(100) + b"{")
    served.loop.run_once(0)
    served.now = SECONDS - 0.1
    slow.sendall(b" ")  # it is not given more
    served.loop.run_once(0)
    assert served.guard.strangers == 2
    served.now = SECONDS
    served.loop.run_once(0)
    assert served.guard.strangers == 0
    for end in (silent, slow):
        served.serve(lambda end=end: served.is_ended(end))  # type: ignore[misc]
        end.close()


def test_idle_connections_keep_nobody_out(served: Served) -> None:
    """Their time is not over: the clock stands still."""
    idle = served.strangers(MOST_STRANGERS + 10)
    assert served.guard.strangers == MOST_STRANGERS
    with served.connect() as end:
        prove(served, end)
    served.serve(lambda: served.is_ended(idle[0]))
    for each in idle:
        each.close()


def test_without_descriptors_a_stranger_makes_room(served: Served) -> None:
    first, second = served.strangers(2)
    served.guard._make_room()
    served.serve(lambda: served.is_ended(first))
    assert served.guard.strangers == 1
    with second:
        prove(served, second)
    first.close()
