import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("flags", [[], ["-u"]])
def test_a_line_is_one_write(flags: list[str]) -> None:
    """Two processes' lines were joined: with `-u` print writes twice."""
    reader, writer = os.pipe2(os.O_DIRECT)  # each write is a packet
    code = "from hvd_ft.system.say import say; say('one')"
    subprocess.run([sys.executable, *flags, "-c", code], stderr=writer, check=True)
    os.close(writer)
    packets = []
    while packet := os.read(reader, 1000):
        packets.append(packet)
    os.close(reader)
    assert packets == [b"hvdft: one\n"]
