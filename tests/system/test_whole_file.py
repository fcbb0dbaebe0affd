"""Small files that are there as a whole, or as they were."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hvd_ft.system.whole_file import write_line, write_whole


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A filesystem in memory, of a few pages."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("a small tmpfs needs root")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def fill(folder: Path) -> None:
    """Leaves no page."""
    with (folder / "filler").open("wb", 0) as file, pytest.raises(OSError, match="No space left"):
        while file.write(bytes(os.sysconf("SC_PAGESIZE"))):
            pass


def test_a_file_is_private_and_leaves_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "f"
    for data in (b"one", b"another one"):
        write_whole(str(path), data)
        assert path.read_bytes() == data
        assert path.stat().st_mode & 0o777 == 0o600
    write_line(str(path), "a line")
    assert path.read_text() == "a line\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_draft_of_a_writer_that_was_killed_is_replaced(tmp_path: Path) -> None:
    """In a container that is started anew processes have the same numbers again."""
    path = tmp_path / "f"
    (tmp_path / f"f.{os.getpid()}").write_bytes(b"longer than the next one")
    write_whole(str(path), b"short")
    assert path.read_bytes() == b"short"
    assert list(tmp_path.iterdir()) == [path]


def test_where_there_is_no_room_the_old_file_stays(small: Path) -> None:
    path = small / "f"
    write_whole(str(path), b"old")
    fill(small)
    with pytest.raises(OSError, match="No space left"):
        write_whole(str(path), b"new")
    assert path.read_bytes() == b"old"
    assert {each.name for each in small.iterdir()} == {"f", "filler"}


def test_a_line_needs_no_room_where_there_was_one(small: Path) -> None:
    path = small / "f"
    write_line(str(path), "a long line")
    fill(small)
    for line in ("short", "longer than it"):
        write_line(str(path), line)
        with path.open() as file:
            assert file.readline() == f"{line}\n"
    with pytest.raises(OSError, match="No space left"):
        write_line(str(small / "g"), "a new file")
    with pytest.raises(OSError, match="No space left"):
        write_line(str(path), "more than a page" * 1000)
    with path.open() as file:
        assert file.readline() == "longer than it\n"
    assert {each.name for each in small.iterdir()} == {"f", "filler"}
