"""Reads a worker's Python stacks: requested by a signal, received through a named pipe.

The worker's `faulthandler` writes them, which needs neither Python's lock nor a debugger. The agent
makes the pipe in the job's directory and reads it in its event loop.
"""

import contextlib
import os
import re

from hvd_ft.native.stacks import SIGNAL
from hvd_ft.system.caught_signals import catches

_CHUNK_BYTES = 1 << 16
_MOST_FRAMES = 12
_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')


def frames(text: str) -> list[str]:
    """Returns the main thread's frames from `faulthandler`'s output, the innermost first.

    Args:
        text: of one request or several; the last one counts.
    """
    _, _, last = text.rpartition("Current thread ")
    found = []
    for line in last.splitlines()[1:]:
        if match := _FRAME.fullmatch(line):
            found.append(f"{match[1]}:{match[2]} in {match[3]}")
        else:
            break
    return found[:_MOST_FRAMES]


def why_none(pid: int) -> str:
    """Returns why a process does not write its stacks."""
    import psutil  # not in every worker

    with contextlib.suppress(psutil.Error):
        state = psutil.Process(pid).status()
        if state == psutil.STATUS_STOPPED:
            return "it is stopped (SIGSTOP)"
        if state == psutil.STATUS_DISK_SLEEP:
            return "it waits in the kernel, perhaps for a disk"
        if not catches(pid, SIGNAL):
            return "it has not been prepared to write its stacks: it has not imported hvd_ft"
    return "its Python does not answer"


class StackReader:
    """The agent's end of the pipe.

    Args:
        directory: of the job.
        rank: of the worker.

    Attributes:
        path: of the pipe, for the worker.
        copy: takes what is read besides, for a flight record; None: nobody wants it.
    """

    def __init__(self, directory: str, rank: int) -> None:
        self.path = os.path.join(directory, f"stacks-{rank}")
        with contextlib.suppress(FileExistsError):  # an older agent's
            os.mkfifo(self.path, 0o600)
        # Open for writing too, so that it does not end when a worker does.
        self._end = os.open(self.path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._text = ""
        self.copy: list[str] | None = None

    def fileno(self) -> int:
        """Returns the descriptor to wait on: readable when `read` has something to read."""
        return self._end

    def read(self) -> None:
        """Reads what is there."""
        with contextlib.suppress(BlockingIOError):
            text = os.read(self._end, _CHUNK_BYTES).decode(errors="replace")
            self._text += text
            if self.copy is not None:
                self.copy.append(text)

    def take(self) -> str:
        """Returns what has been read since the last call."""
        text, self._text = self._text, ""
        return text

    def close(self) -> None:
        """Closes this end."""
        os.close(self._end)
