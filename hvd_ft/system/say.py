"""The only way in which processes of hvd_ft print lines for the user.

Each is a single write(2), because processes share their streams, and MPI's launcher merges those of
all ranks as they come: `print` in an unbuffered Python (`PYTHONUNBUFFERED`, common in containers)
writes the newline separately, and another process's line may come in between.
"""

import sys
from typing import TextIO


def say(text: object) -> None:
    """Writes a line to stderr with the prefix of all of hvd_ft's lines."""
    _write(sys.stderr, f"hvdft: {text}\n")


def answer(text: object) -> None:
    """Writes a line to stdout: a part of what a command was asked for."""
    _write(sys.stdout, f"{text}\n")


def _write(stream: TextIO, line: str) -> None:
    stream.write(line)
    stream.flush()
