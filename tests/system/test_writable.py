"""Results go to whatever lies at their path, and never put a file in the place of a device."""

import errno
import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Device

from hvd_ft.errors import HvdFtError
from hvd_ft.system import writable
from hvd_ft.system.writable import (
    NotWrittenError,
    Output,
    check_directory,
    check_writable,
    make_directory,
    write_file,
)

LARGE = bytes(range(256)) * 4096  # 1 MiB: a pipe holds 64 KiB


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A FIFO's reader is waited for only a moment."""
    monkeypatch.setattr(writable, "READER_SECONDS", 0.2)


class Reader:
    """A thread that reads a FIFO to its end."""

    def __init__(self, path: Path) -> None:
        self.data = b""
        self._path = path
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        self.data = self._path.read_bytes()

    def all(self) -> bytes:
        """Returns what it has read when the writer has closed."""
        self._thread.join(60)
        return self.data


@pytest.fixture
def restricted() -> Iterator[None]:
    """Root may write everything, so these tests run as the user nobody."""
    if os.geteuid() == 0:
        os.setresuid(65534, 65534, 0)
        yield
        os.setresuid(0, 0, 0)
    else:
        yield


def test_what_can_be_written(tmp_path: Path, fifo: Path, device: Device) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dangling").symlink_to("not-yet")
    names = ["file", "link", "dangling", "new"]
    check_writable(*(str(tmp_path / name) for name in names), str(fifo), device("null"))
    check_writable(None)
    found = sorted(set(os.listdir(tmp_path)) - {"null"})
    assert found == ["dangling", "fifo", "file", "link"]  # nothing is made


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "it is a directory"),
        ("none/file", "none is not a directory that you can write"),
        ("new/", "is not a directory that you can write"),
        ("file/below", "Not a directory"),
        ("loop", "Too many levels of symbolic links"),
        ("socket", "it is a socket"),
        ("into-none", "none is not a directory that you can write"),
    ],
)
def test_what_cannot_be_written_is_named_with_the_reason(
    tmp_path: Path, name: str, reason: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "into-none").symlink_to("none/file")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        with pytest.raises(HvdFtError, match="cannot write ") as error:
            check_writable(f"{tmp_path}/{name}")
    assert reason in str(error.value)
    assert not isinstance(error.value, NotWrittenError)  # it is bad input


def test_a_disk_is_no_place_for_a_report(tmp_path: Path) -> None:
    try:
        os.mknod(tmp_path / "disk", stat.S_IFBLK | 0o600, os.makedev(259, 65535))
    except PermissionError:
        pytest.skip("making a device needs root")
    with pytest.raises(HvdFtError, match="it is a disk"):
        check_writable(str(tmp_path / "disk"))


def test_another_users_file_is_refused(restricted: None) -> None:
    with pytest.raises(HvdFtError, match=r"/etc/passwd \(you may not write it\)"):
        check_writable("/etc/passwd")
    with pytest.raises(HvdFtError, match="/etc is not a directory that you can write"):
        check_writable("/etc/new")


def test_a_new_file_and_an_old_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    umask = os.umask(0o027)
    try:
        write_file(path, b"one")
    finally:
        os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o604)
    write_file(str(path), b"2")
    assert path.read_bytes() == b"2"
    assert stat.S_IMODE(path.stat().st_mode) == 0o604
    assert os.listdir(tmp_path) == ["file"]


def test_the_old_file_is_there_until_the_new_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full(descriptor: int) -> None:
        assert path.read_bytes() == b"old"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NotWrittenError, match=r"file could not be written \(No space left"):
        write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder/file")
    for data in (b"made", b"replaced"):
        write_file(tmp_path / "link", data)
        assert (tmp_path / "folder" / "file").read_bytes() == data
    assert (tmp_path / "link").is_symlink()
    output = Output(str(tmp_path / "link"))
    output.write(b"as it goes")
    output.finish()
    assert (tmp_path / "folder" / "file").read_bytes() == b"as it goes"
    assert (tmp_path / "link").is_symlink()


def test_a_file_in_a_directory_that_is_not_ours_is_written_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a longer text")
    access = os.access
    monkeypatch.setattr(
        os, "access", lambda name, mode: str(name) != str(tmp_path) and access(name, mode)
    )
    inode = path.stat().st_ino
    write_file(path, b"short")
    assert (path.read_bytes(), path.stat().st_ino) == (b"short", inode)


@pytest.mark.parametrize("name", ["null", "full"])
def test_a_device_stays_a_device(device: Device, name: str) -> None:
    path = device(name)
    before = os.stat(path)
    if name == "null":
        write_file(path, b"data")
    else:
        with pytest.raises(NotWrittenError, match="No space left on device"):
            write_file(path, b"data")
    after = os.stat(path)
    assert (after.st_mode, after.st_ino) == (before.st_mode, before.st_ino)


def test_a_file_without_a_name_is_written_into(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("w+b") as file:
        file.write(b"before")
        file.flush()
        path.unlink()
        write_file(f"/dev/fd/{file.fileno()}", b"new")
        file.seek(0)
        assert file.read() == b"new"
    assert os.listdir(tmp_path) == []


def test_a_fifo_gets_all_of_it(fifo: Path) -> None:
    reader = Reader(fifo)
    write_file(fifo, LARGE)
    assert reader.all() == LARGE
    assert stat.S_ISFIFO(fifo.stat().st_mode)


def test_a_fifo_that_nobody_reads_is_an_error(fifo: Path, impatient: None) -> None:
    with pytest.raises(NotWrittenError, match=r"it was not read for 0\.2 s"):
        write_file(fifo, b"data")


def test_a_socket_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        with pytest.raises(NotWrittenError, match="No such device or address"):
            write_file(path, b"data")


def test_a_fifo_whose_reader_takes_nothing_is_an_error(fifo: Path, impatient: None) -> None:
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(NotWrittenError, match=r"it was not read for 0\.2 s"):
            write_file(fifo, LARGE)
    finally:
        os.close(reader)


def test_a_fifo_whose_reader_leaves_is_an_error(fifo: Path) -> None:
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    output = Output(str(fifo))
    output.write(b"one")
    assert os.read(reader, 16) == b"one"
    os.close(reader)
    output.write(b"two")
    with pytest.raises(NotWrittenError, match="Broken pipe"):
        output.finish()


def test_what_is_written_is_there_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"of an earlier run, and longer")
    output = Output(str(path))
    output.write(b"one\n")
    assert path.read_bytes() == b"one\n"
    output.write(b"two\n")
    assert path.read_bytes() == b"one\ntwo\n"
    output.finish()
    assert path.read_bytes() == b"one\ntwo\n"


def test_a_private_file_is_for_its_owner_only(tmp_path: Path) -> None:
    output = Output(str(tmp_path / "file"), private=True)
    output.write(b"one")
    output.finish()
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600


def test_what_is_there_may_be_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"kept\ncut o")
    output = Output(str(path), keep_bytes=5)
    output.write(b"new\n")
    output.finish()
    assert path.read_bytes() == b"kept\nnew\n"


def test_writing_never_waits_and_a_late_reader_gets_everything(fifo: Path) -> None:
    output = Output(str(fifo))
    output.write(b"first ")  # there is no reader
    late = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    output.write(LARGE)  # more than the pipe holds
    output.write(b" last")
    assert output.error == ""
    reader = Reader(fifo)
    output.finish()
    os.close(late)
    assert reader.all() == b"first " + LARGE + b" last"


def test_what_nobody_reads_does_not_fill_the_memory(
    fifo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writable, "_PENDING_BYTES", 10)
    output = Output(str(fifo))
    output.write(b"0123456789")
    assert output.error == ""
    output.write(b"x")
    assert output.error == "nobody reads it"
    with pytest.raises(NotWrittenError, match="nobody reads it"):
        output.finish()


def test_after_an_error_nothing_more_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    output = Output(str(path))
    output.write(b"one\n")
    with monkeypatch.context() as patch:

        def full(descriptor: int, data: bytes) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patch.setattr(os, "write", full)
        output.write(b"two\n")
    assert output.error == "No space left on device"
    output.write(b"three\n")  # the disk has room again, but a line would be missing
    with pytest.raises(NotWrittenError, match="No space left on device"):
        output.finish()
    assert path.read_bytes() == b"one\n"


def test_a_directory_is_made_and_written(tmp_path: Path) -> None:
    wanted = tmp_path / "a" / "b"
    check_directory(str(wanted))
    assert not (tmp_path / "a").exists(), "nothing is made yet"
    make_directory(str(wanted))
    assert wanted.is_dir() and not list(wanted.iterdir())
    make_directory(str(wanted))


@pytest.mark.parametrize("place", ["file", "file/below", "to-file", "nowhere/below"])
def test_what_cannot_be_a_directory(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "to-file").symlink_to("file")
    (tmp_path / "nowhere").symlink_to("file")
    for refuse in (check_directory, make_directory):
        with pytest.raises(HvdFtError, match=r"nothing can be written to .* is not a directory\)"):
            refuse(str(tmp_path / place))


def test_a_directory_that_may_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    for wanted in (tmp_path, tmp_path / "new"):
        with pytest.raises(HvdFtError, match=f"{tmp_path} is not yours"):
            check_directory(str(wanted))


def test_a_full_disk_is_found_by_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(HvdFtError, match="No space left on device"):
        make_directory(str(tmp_path))
    assert not list(tmp_path.iterdir())
