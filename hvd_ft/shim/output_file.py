"""A file that receives a copy of a rank's output, of `hvdft run --output-filename`.

A thread makes and writes it: a disk that does not answer holds up neither the shim, which has to
answer its agent, nor the worker. The thread holds no lock that a forked process needs.
"""

from __future__ import annotations

import contextlib
import os
import threading
from queue import SimpleQueue

from hvd_ft.system.say import say

_MOST_WAITING_BYTES = 64 << 20
_CLOSE_SECONDS = 5.0


class OutputFile:
    """The file; what is there already stays, as the output of an earlier process of the rank.

    Args:
        path: of the file, whose folder is made.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._given = self._done = 0  # bytes; each is counted by one thread
        self._complained = False
        self._thread = threading.Thread(target=self._write_all, daemon=True)
        self._thread.start()

    def write(self, data: bytes) -> None:
        """Has the bytes appended, soon; drops them if too many wait for the disk."""
        if not data:
            return
        if self._given - self._done > _MOST_WAITING_BYTES:
            self._complain("the disk is too slow")
            return
        self._given += len(data)
        self._queue.put(data)

    def close(self) -> None:
        """Waits until everything is written, but not for a disk that does not answer."""
        self._queue.put(None)
        self._thread.join(_CLOSE_SECONDS)

    def _write_all(self) -> None:
        file = -1
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            file = os.open(self._path, flags, 0o600)
        except OSError as error:
            self._complain(error.strerror or str(error))
        while (data := self._queue.get()) is not None:
            try:
                left = data if file >= 0 else b""
                while left:
                    left = left[os.write(file, left) :]
            except OSError as error:
                self._complain(error.strerror or str(error))
            self._done += len(data)
        if file >= 0:
            with contextlib.suppress(OSError):
                os.close(file)

    def _complain(self, reason: str) -> None:
        if not self._complained:
            self._complained = True
            say(
                f"the output cannot be written to {self._path} ({reason}), so that file is not "
                "complete; give another --output-filename"
            )
