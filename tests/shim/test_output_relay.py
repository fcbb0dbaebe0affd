"""The relay of what workers print."""

import os
import select
import time
from pathlib import Path

import pytest
from streams import standard_streams

from hvd_ft.shim import output_file
from hvd_ft.shim.output_relay import OutputRelay
from hvd_ft.system.event_loop import EventLoop


def available(reader: int) -> bytes:
    """Returns what can be read now, without waiting for more."""
    return os.read(reader, 1 << 16) if select.select([reader], [], [], 0)[0] else b""


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


def test_lines_are_marked_and_copied_to_files(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "rank.07"
    with standard_streams() as streams, EventLoop() as loop:
        relay = OutputRelay(loop)
        relay.shape(7, "rank", str(folder))
        os.write(relay.ends[0], b"one\nunfin")
        os.write(relay.ends[1], b"error\n")
        relay.flush()
        assert [os.read(reader, 100) for reader in streams] == [
            b"[7]<stdout>:one\n",
            b"[7]<stderr>:error\n",
        ]
        os.write(relay.ends[0], b"ished")
        relay.flush(unfinished=True)  # the worker has ended
        assert available(streams[0]) == b"[7]<stdout>:unfinished\n"
        relay.close()
    assert (folder / "stdout").read_text() == "one\nunfinished"
    assert (folder / "stderr").read_text() == "error\n"
    modes = [path.stat().st_mode & 0o777 for path in (folder, folder / "stdout")]
    assert modes == [0o700, 0o600], "what ranks print is their user's only"


def test_the_time_stands_before_the_rank_as_with_horovodrun() -> None:
    with standard_streams() as streams, EventLoop() as loop:
        relay = OutputRelay(loop)
        relay.shape(0, "time", "")
        os.write(relay.ends[0], b"a\nb\n")
        relay.flush()
        first, second = os.read(streams[0], 200).decode().splitlines()
    # Such as: Sun Nov 29 08:12:14 2026[0]<stdout>:a
    assert first.endswith("[0]<stdout>:a")
    assert second.endswith("[0]<stdout>:b")
    time.strptime(first.removesuffix("[0]<stdout>:a"))


def test_a_file_that_cannot_be_written_is_reported_once_and_the_output_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(output_file, "say", said.append)
    (tmp_path / "file").touch()
    with standard_streams() as streams, EventLoop() as loop:
        relay = OutputRelay(loop)
        relay.shape(0, "none", str(tmp_path / "file" / "rank.0"))
        for line in (b"one\n", b"two\n"):
            os.write(relay.ends[0], line)
            relay.flush()
        relay.close()
        assert os.read(streams[0], 100) == b"one\ntwo\n"
    complaints = [line for line in said if "stdout" in line]
    assert len(complaints) == 1
    assert "(Not a directory)" in complaints[0]
