"""The relay of what workers print."""

import os

from streams import standard_streams

from hvd_ft.shim.output_relay import OutputRelay
from hvd_ft.system.event_loop import EventLoop


def test_what_is_printed_without_an_agent_is_not_lost() -> None:
    with standard_streams() as streams, EventLoop() as loop:
        relay = OutputRelay(loop)
        os.write(relay.ends[0], b"one\n")
        os.write(relay.ends[1], b"error\n")
        relay.flush()
        assert [os.read(reader, 100) for reader in streams] == [b"one\n", b"error\n"]
        os.write(relay.ends[0], b"two\n")
        relay.detach()
        os.write(relay.ends[0], b"three\n")
        loop.run_once(0)
        relay.flush()
        assert os.read(streams[0], 100) == b""  # the old pipe is closed everywhere
        reader, end = os.pipe()
        relay.attach([end, os.open(os.devnull, os.O_WRONLY)])
        relay.flush()
        assert os.read(reader, 100) == b"two\nthree\n"


def test_lines_stay_whole() -> None:
    with standard_streams() as streams, EventLoop() as loop:
        relay = OutputRelay(loop)
        text = b"".join(b"%d " % number + b"x" * 700 + b"\n" for number in range(50))
        os.write(relay.ends[0], text)
        seen = []
        while relay.move():
            seen.append(os.read(streams[0], 1 << 20))
        assert b"".join(seen) == text
        assert all(piece.endswith(b"\n") for piece in seen)
        assert len(seen) > 5
