"""The only way in which processes of hvd_ft print lines for the user.

Each is a single write(2), because processes share their streams, and MPI's launcher merges those of
all ranks as they come: `print` in an unbuffered Python (`PYTHONUNBUFFERED`, common in containers)
writes the newline separately, and another process's line may come in between.

A program that embeds hvd_ft can have the lines of its process as records instead, by giving the
logger `hvd_ft` of Python's `logging` a handler.
"""

import sys
from typing import TextIO

PREFIX = "hvdft: "


def say(text: object) -> None:
    """Writes a line to stderr with the prefix of all of hvd_ft's lines, or logs it."""
    if not log(str(text)):
        _write(sys.stderr, f"{PREFIX}{text}\n")


def logs() -> bool:
    """Returns whether lines are logged: the logger `hvd_ft` has a handler."""
    logging = sys.modules.get("logging")  # whoever has made a handler has imported it
    return logging is not None and bool(logging.getLogger("hvd_ft").handlers)


def log(line: str) -> bool:
    """Logs a line if lines are logged; returns whether they are.

    Args:
        line: without a prefix; one that begins with `warning:` is logged as such, others as info.
    """
    if not logs():
        return False
    import logging

    what = line.removeprefix("warning: ")
    level = logging.INFO if what == line else logging.WARNING
    logging.getLogger("hvd_ft").log(level, "%s", what)
    return True


def answer(text: object) -> None:
    """Writes a line to stdout: a part of what a command was asked for."""
    _write(sys.stdout, f"{text}\n")


def _write(stream: TextIO, line: str) -> None:
    stream.write(line)
    stream.flush()
