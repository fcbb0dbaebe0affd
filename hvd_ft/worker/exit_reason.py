"""What a worker says when an uncaught exception ends it, kept where its agent finds it."""

import sys
import traceback
from types import TracebackType

from hvd_ft import native
from hvd_ft.errors import HvdFtError
from hvd_ft.native.types import BEFORE_INIT

_MAX_MESSAGE = 300
_SIGNALS = 128  # exit codes of jobs that a signal has stopped are above


def last_words(error: BaseException, trace: TracebackType | None) -> str:
    """Returns an exception in one line: its type, its message, and where it was raised.

    Args:
        error: the exception.
        trace: of it. Of its frames the last one in the script counts, not those in libraries
            below it.
    """
    message = " ".join(str(error).split())
    if len(message) > _MAX_MESSAGE:
        message = message[: _MAX_MESSAGE - 1] + "…"
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    place = _place(trace)
    return f"{text} ({place})" if place else text


def keep_last_words() -> None:
    """From now on an uncaught exception leaves its last words with the agent, if there is one.

    Its traceback is printed, unless it tells nothing new: an error of ours is told by the agent,
    and when the user has stopped the job everybody fails.
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
    """Leaves the last words; returns whether that is enough."""
    words = last_words(error, trace)
    if not native.is_attached():
        words = f"{BEFORE_INIT}{words}"
    worker = native.worker()
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
    """Returns where in the script an exception was raised, as `file:line`; "" if nowhere."""
    frames = traceback.extract_tb(trace)
    own = [frame for frame in frames if "site-packages" not in frame.filename]
    if not frames:
        return ""
    frame = (own or frames)[-1]
    return f"{frame.filename}:{frame.lineno}"
