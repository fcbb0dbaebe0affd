"""What a worker says when an uncaught exception ends it, kept where its agent finds it."""

import sys
import traceback
from types import TracebackType

from hvd_ft import native

_MAX_MESSAGE = 300


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
    frames = traceback.extract_tb(trace)
    own = [frame for frame in frames if "site-packages" not in frame.filename]
    if not frames:
        return text
    frame = (own or frames)[-1]
    return f"{text} ({frame.filename}:{frame.lineno})"


def keep_last_words() -> None:
    """From now on an uncaught exception leaves its last words with the agent, if there is one."""
    if native.in_job():
        previous = sys.excepthook

        def hook(
            kind: type[BaseException], error: BaseException, trace: TracebackType | None
        ) -> None:
            worker = native.worker()
            if worker is not None:
                worker.last_words(last_words(error, trace))
            previous(kind, error, trace)

        sys.excepthook = hook
