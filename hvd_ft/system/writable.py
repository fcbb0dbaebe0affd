"""Writes results to a path that may be new, a file, a device or a FIFO.

A regular file is replaced as a whole, or written as events happen. Anything else is written to in
place, as a rename would replace a device by a regular file. Symbolic links are followed.
"""

import contextlib
import errno
import os
import secrets
import select
import socket
import stat
import tempfile
import time
from pathlib import Path

from hvd_ft.errors import HvdFtError

EXIT_NOT_WRITTEN = 74  # EX_IOERR of sysexits.h
READER_SECONDS = 10.0  # limit for the reader of a FIFO to come, and to read the rest
_PENDING_BYTES = 16 << 20  # bytes that may wait for the reader
_LOOK_SECONDS = 0.05
_BLOCK_BYTES = 4096
# Opening and writing never block: a FIFO without a reader fails with ENXIO, a full one with EAGAIN.
_FLAGS = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class NotWrittenError(HvdFtError):
    """A result could not be written; a command that succeeded otherwise ends with code 74."""


def check_writable(*paths: str | None) -> None:
    """Checks that files can be written, before the work begins.

    Args:
        paths: Of the files; None for a file that is not requested.

    Raises:
        HvdFtError: A file cannot be written.
    """
    for path in filter(None, paths):
        if reason := _why_not_writable(path):
            raise HvdFtError(f"cannot write {path} ({reason}); give another file")


def check_directory(path: str) -> None:
    """Checks that a directory for results exists or can probably be made, and can be written.

    Raises:
        HvdFtError: It cannot.
    """
    above = os.path.realpath(path)
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    if not os.path.isdir(above):
        raise _no_directory(path, f"{above} is not a directory")
    if not os.access(above, os.W_OK | os.X_OK):
        read_only = os.statvfs(above).f_flag & os.ST_RDONLY
        raise _no_directory(path, f"{above} {'is read-only' if read_only else 'is not yours'}")


def make_directory(path: str) -> None:
    """Makes a directory for results, and writes into it, before the work begins.

    Raises:
        HvdFtError: It cannot be made, or not be written.
    """
    check_directory(path)
    try:
        os.makedirs(path, 0o700, exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(bytes(_BLOCK_BYTES))
            file.flush()
            os.fsync(file.fileno())  # some filesystems report only now that they are full
    except OSError as error:
        raise _no_directory(path, error.strerror or str(error)) from error


def write_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes a whole file; a regular file appears, or changes, atomically.

    Args:
        path: Where to.
        data: All of it.

    Raises:
        NotWrittenError: It cannot be written; a regular file keeps its old contents.
    """
    name = os.fspath(path)
    try:
        replaced = _replaced_by_rename(name)
        if replaced is not None:
            _replace(replaced, data)
            return
    except OSError as error:
        raise _not_written(name, error.strerror) from error
    output = Output(name)
    output.write(data)
    output.finish()


class Output:
    """A file that is written as events happen.

    Writing neither blocks nor raises: data that the reader of a FIFO has not read yet is kept in
    memory, and after an error nothing more is written.

    Args:
        path: Of the file.
        keep_bytes: How much of a regular file's present contents is kept.
        private: Whether a new file is for its owner only.

    Attributes:
        error: Why the file could not be written; "" if it could.
    """

    def __init__(self, path: str, keep_bytes: int = 0, private: bool = False) -> None:
        self._path = path
        self._keep_bytes = keep_bytes
        self._mode = 0o600 if private else 0o666
        self._file: int | None = None
        self._pending = bytearray()
        self.error = ""

    def write(self, data: bytes) -> None:
        """Writes as much as possible without blocking."""
        if not self.error:
            self._pending += data
            self._try()

    def finish(self) -> None:
        """Writes the rest and closes the file.

        Raises:
            NotWrittenError: Not everything could be written, or to a FIFO not within 10 s.
        """
        deadline = time.monotonic() + READER_SECONDS
        while self._pending and not self.error:
            left = deadline - time.monotonic()
            if left <= 0:
                self.error = f"it was not read for {READER_SECONDS:g} s"
                break
            if self._file is None:
                time.sleep(_LOOK_SECONDS)  # a FIFO does not report that it has a reader
            else:
                select.select([], [self._file], [], left)
            self._try()
        if self._file is not None:
            try:
                os.close(self._file)
            except OSError as error:
                self.error = self.error or error.strerror or str(error)
            self._file = None
        if self.error:
            raise _not_written(self._path, self.error)

    def _try(self) -> None:
        try:
            if self._file is None:
                self._file = self._open()
            while self._pending:
                del self._pending[: os.write(self._file, self._pending)]
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno != errno.ENXIO or not _is_fifo(self._path):
                self.error = error.strerror or str(error)
        if len(self._pending) > _PENDING_BYTES:
            self.error = "nobody reads it"

    def _open(self) -> int:
        file = os.open(self._path, _FLAGS | os.O_CREAT, self._mode)
        if stat.S_ISREG(os.fstat(file).st_mode):
            os.ftruncate(file, self._keep_bytes)
            os.lseek(file, 0, os.SEEK_END)
        return file


def _why_not_writable(path: str) -> str:
    """Returns why a file cannot be written; "" if it probably can."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        directory = Path(os.path.realpath(path)).parent
        if path.endswith("/") or not os.access(directory, os.W_OK | os.X_OK):
            return f"{directory} is not a directory that you can write"
        return ""
    except OSError as error:
        return error.strerror or str(error)
    for is_kind, kind in (
        (stat.S_ISDIR, "a directory"),
        (stat.S_ISBLK, "a disk"),
        (stat.S_ISSOCK, "a socket"),
    ):
        if is_kind(mode):
            return f"it is {kind}"
    return "" if os.access(path, os.W_OK) else "you may not write it"


def _replaced_by_rename(path: str) -> str | None:
    """Returns the regular file behind all links, which need not exist yet; otherwise None."""
    target = os.path.realpath(path)
    if not os.access(os.path.dirname(target), os.W_OK | os.X_OK):
        return None
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return target
    if not stat.S_ISREG(found.st_mode):
        return None
    # /dev/fd/3 may refer to a file that has no name any more.
    with contextlib.suppress(OSError):
        if os.path.samestat(found, os.stat(target)):
            return target
    return None


def _replace(target: str, data: bytes) -> None:
    directory, name = os.path.split(target)
    draft = os.path.join(directory, f".{name}.{secrets.token_hex(4)}")
    try:
        with open(draft, "xb") as file:
            with contextlib.suppress(FileNotFoundError, PermissionError):
                before = os.stat(target)
                os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
                os.fchown(file.fileno(), before.st_uid, before.st_gid)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # some filesystems report only now that they are full
        os.replace(draft, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)
        raise


def _is_fifo(path: str) -> bool:
    with contextlib.suppress(OSError):
        return stat.S_ISFIFO(os.stat(path).st_mode)
    return False


def _no_directory(path: str, reason: str) -> HvdFtError:
    return HvdFtError(
        f"nothing can be written to {path} on {socket.gethostname()} ({reason}); give "
        "--checkpoint-dir another directory"
    )


def _not_written(path: str, reason: str | None) -> NotWrittenError:
    return NotWrittenError(f"{path} could not be written ({reason}); give another file")
