import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("flags", [[], ["-u"]])
@pytest.mark.parametrize(("how", "line"), [("say", b"hvdft: one\n"), ("answer", b"one\n")])
def test_a_line_is_one_write(flags: list[str], how: str, line: bytes) -> None:
    """Two processes' lines were joined: with `-u` print writes twice."""
    reader, writer = os.pipe2(os.O_DIRECT)  # each write is a packet
    code = f"from hvd_ft.system.say import {how}; {how}('one')"
    where = {"stderr" if how == "say" else "stdout": writer}
    subprocess.run([sys.executable, *flags, "-c", code], check=True, **where)
    os.close(writer)
    packets = []
    while packet := os.read(reader, 1000):
        packets.append(packet)
    os.close(reader)
    assert packets == [line]
