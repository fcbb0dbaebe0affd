"""Small files that exist as a whole or not at all, whenever their writer is killed."""

import contextlib
import mmap
import os


def write_whole(path: str, data: bytes) -> None:
    """Writes a small file, for its owner only.

    Args:
        path: path of the file, which is replaced if it exists. Only the owner may enter its
            directory.
        data: its contents.

    Raises:
        OSError: it cannot be written.
    """
    draft = f"{path}.{os.getpid()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(draft, flags, 0o600), "wb") as file:
            file.write(data)
        os.replace(draft, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise


def write_through(path: str | os.PathLike[str], draft: str | os.PathLike[str], data: bytes) -> None:
    """Writes a small file to the disk, for its owner only, also in a directory of several hosts.

    Args:
        path: path of the file, which is replaced if it exists.
        draft: where it is prepared. The caller sees to it that nobody else writes there.
        data: its contents.

    Raises:
        OSError: it cannot be written.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(draft)  # of a writer that was killed
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(draft, flags, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)


def write_line(path: str, line: str) -> None:
    """Writes a file of one line; an existing one even if there is no room for another file.

    Args:
        path: of the file, as for `write_whole`.
        line: without its end. Readers have to take the first line of the file: there may be more.

    Raises:
        OSError: it cannot be written.
    """
    data = f"{line}\n".encode()
    try:
        write_whole(path, data)
    except OSError:
        if len(data) > mmap.PAGESIZE or not os.path.isfile(path):
            raise
        # A page that the file has already: written at once, as no signal interrupts that.
        with open(os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "wb", 0) as file:
            file.write(data)
