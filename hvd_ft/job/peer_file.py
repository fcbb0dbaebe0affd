"""Lets the agents of a generation find each other through a directory that all nodes share.

There is one small file for a job: its id, the generation, and each rank's facts. An agent enters
itself under a lock by writing a whole new file and renaming it, so a partial file is never read;
and since the file names job and generation, an old one is never taken for new. Without such a
directory agents learn the generation from their launcher and the rest over MPI.
"""

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hvd_ft.errors import HvdFtError
from hvd_ft.system.file_lock import lock_in_time
from hvd_ft.system.json_text import read_json_as
from hvd_ft.system.whole_file import write_through

_LOOK_SECONDS = 0.02
_LOCK_SECONDS = 10.0


@dataclass(frozen=True)
class Peers:
    """The file's contents.

    Attributes:
        job: id of the job.
        generation: of the agents.
        ranks: each rank's facts, by rank.
    """

    job: str
    generation: int
    ranks: dict[int, Any] = field(default_factory=dict)

    def entered(self, rank: int, facts: Any) -> "Peers":
        """Returns the same contents with one more rank."""
        return Peers(self.job, self.generation, {**self.ranks, rank: facts})


class PeerFile:
    """A job's file.

    Args:
        directory: that all nodes share.
        job: id of the job.
    """

    def __init__(self, directory: str, job: str) -> None:
        self._job = job
        self._path = os.path.join(directory, f"hvdft-{job}.peers")
        self._lock_path = os.path.join(directory, f"hvdft-{job}.lock")

    def meet(
        self, generation: int, rank: int, size: int, facts: Any, timeout_seconds: float
    ) -> list[Any]:
        """Enters a rank, and waits until all ranks of its generation have entered.

        Args:
            generation: of the caller.
            rank: of the caller.
            size: of the job.
            facts: for the other ranks; anything that JSON can represent.
            timeout_seconds: how long to wait for the others.

        Returns: The facts of all ranks, in their order.

        Raises:
            HvdFtError: there are agents of a later generation, a rank did not come in time, or the
                directory cannot be used.
        """
        try:
            with self._locked():
                peers = self._current(generation).entered(rank, facts)
                data = json.dumps(vars(peers)).encode()
                write_through(self._path, f"{self._path}.new", data)
            deadline = time.monotonic() + timeout_seconds
            while len(peers.ranks) < size:
                if time.monotonic() > deadline:
                    missing = ", ".join(str(r) for r in range(size) if r not in peers.ranks)
                    raise HvdFtError(
                        f"rank {rank} waited {timeout_seconds:g} s for rank {missing} in "
                        f"{self._path}: check that HOROVOD_FT_SHARED_DIR is the same on all nodes"
                    )
                time.sleep(_LOOK_SECONDS)  # a network filesystem does not notify of changes
                peers = self._current(generation)
        except OSError as error:
            raise HvdFtError(
                f"{self._path} cannot be used ({error.strerror or error}): set "
                "HOROVOD_FT_SHARED_DIR to a directory that is writable for you on all nodes"
            ) from error
        return [peers.ranks[r] for r in range(size)]

    def remove(self) -> None:
        """Removes the file, at the end of the job."""
        for path in (self._path, self._lock_path):
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _current(self, generation: int) -> Peers:
        """Returns the contents if they are of this generation."""
        found = self._read()
        if found is None or found.job != self._job or found.generation < generation:
            return Peers(self._job, generation)
        if found.generation > generation:
            raise HvdFtError(
                f"{self._path} has agents of generation {found.generation}; this one is of "
                f"generation {generation} and ends"
            )
        return found

    def _read(self) -> Peers | None:
        try:
            with open(self._path, "rb") as file:
                return read_json_as(file.read(), Peers)
        except (FileNotFoundError, ValueError):
            return None  # not there yet, or not readable as such a file

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        lock = os.open(
            self._lock_path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            remedy = (
                "see which process has it (lslocks), or if HOROVOD_FT_SHARED_DIR has a "
                "filesystem on which locks work"
            )
            lock_in_time(lock, _LOCK_SECONDS, f"the lock {self._lock_path}", remedy)
            yield
        finally:
            os.close(lock)
