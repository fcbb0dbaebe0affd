"""The arbiter of MPI clusters: a job's record as a file in a directory that all hosts share.

The file is replaced under a lock, by renaming a whole new one, so that it is never read in part.
The lock only orders two launchers that replace the file at the same time. A free lock proves
nothing about the leader: a server takes the locks away from a host that it cannot reach, although
the host may be alive. So leadership depends on renewals alone (leadership.py).
"""

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict

from hvd_ft.members.leadership import Record
from hvd_ft.system.json_text import read_json_as
from hvd_ft.system.whole_file import write_through


class SharedRecord:
    """A job's record.

    Args:
        directory: the directory that all hosts share.
        job: id of the job.
    """

    def __init__(self, directory: str, job: str) -> None:
        self._job = job
        self.path = os.path.join(directory, f"hvdft-{job}.leader")
        self._lock = os.path.join(directory, f"hvdft-{job}.leader-lock")

    def read(self) -> Record | None:
        """As `Arbiter.read`."""
        try:
            with open(os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                record = read_json_as(file.read(), Record)
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise OSError(errno.EINVAL, f"{self.path} is not a job's record: {error}") from error
        if record.job != self._job:
            raise OSError(errno.EINVAL, f"{self.path} is the record of job {record.job}")
        return record

    def swap(self, expected: Record | None, new: Record) -> bool:
        """As `Arbiter.swap`."""
        with self._locked():
            if self.read() != expected:
                return False
            write_through(self.path, f"{self.path}.new", json.dumps(asdict(new)).encode())
            return True

    def remove(self) -> None:
        """As `Arbiter.remove`."""
        for path in (self.path, self._lock):
            with contextlib.suppress(OSError):
                os.unlink(path)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = os.open(self._lock, flags, 0o600)
        try:
            # It is held for milliseconds. Whoever does not get it tries again at the next renewal.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(lock)
