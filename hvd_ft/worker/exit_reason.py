"""Keeps the message of the uncaught exception that ends a worker, for its agent."""

import os
import sys
import traceback
from types import TracebackType

from hvd_ft import __file__ as PACKAGE
from hvd_ft import native
from hvd_ft.errors import HvdFtError
from hvd_ft.native.types import BEFORE_INIT
from hvd_ft.system.say import say

_MAX_MESSAGE = 300
_LIBRARIES = tuple(
    os.path.join(folder, "") for folder in (os.path.dirname(os.__file__), os.path.dirname(PACKAGE))
)
_SIGNALS = 128  # exit codes of jobs stopped by a signal are above


def last_words(error: BaseException, trace: TracebackType | None) -> str:
    """Returns an exception in one line: its type, its message, and where it was raised.

    Args:
        error: the exception.
        trace: of it. The last frame in the script counts, not those in libraries below it.
    """
    message = " ".join(str(error).split())
    if len(message) > _MAX_MESSAGE:
        message = message[: _MAX_MESSAGE - 1] + "…"
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    place = _place(trace)
    return f"{text} ({place})" if place else text


def keep_last_words() -> None:
    """Makes an uncaught exception leave its last words with the agent, if there is one.

    Its traceback is printed, unless it says nothing new: the agent prints hvd_ft's own errors, and
    when the user has stopped the job every rank fails.
    """
    if native.in_job():
        previous = sys.excepthook

        def hook(
            kind: type[BaseException], error: BaseException, trace: TracebackType | None
        ) -> None:
            if not _tell(error, trace):
                previous(kind, error, trace)

        sys.excepthook = hook


def _tell(error: BaseException, trace: TracebackType | None) -> bool:
    """Leaves the last words; returns whether the traceback can be omitted."""
    words = last_words(error, trace)
    if not native.is_attached():
        words = f"{BEFORE_INIT}{words}"
    try:
        worker = native.worker()
    except HvdFtError as problem:  # the arena is damaged, say: nothing can be left there
        say(problem)
        return str(problem) == str(error)
    if worker is None:
        return False
    if isinstance(error, KeyboardInterrupt) or worker.stop_code > _SIGNALS:
        return True
    worker.last_words(words)
    if isinstance(error, HvdFtError):  # a restart would not help
        place = _place(trace)
        worker.fatal(f"rank {worker.rank}: {error}{f' ({place})' if place else ''}")
        return True
    return False


def _place(trace: TracebackType | None) -> str:
    """Returns the place in the script where an exception was raised, as `file:line`; "" if none."""
    frames = traceback.extract_tb(trace)
    own = [frame for frame in frames if not _is_library(frame.filename)]
    if not frames:
        return ""
    frame = (own or frames)[-1]
    return f"{frame.filename}:{frame.lineno}"


def _is_library(file: str) -> bool:
    """Returns whether a file is Python's own, hvd_ft's, or an installed package's."""
    installed = "site-packages" in file or "dist-packages" in file
    return installed or file.startswith((*_LIBRARIES, "<frozen "))
