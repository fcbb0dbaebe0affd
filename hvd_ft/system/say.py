"""The one way in which processes of hvd_ft tell their user something."""

import sys


def say(text: object) -> None:
    """Writes a line to stderr, behind the prefix that all of hvd_ft's lines have.

    It is one write(2), for processes share their stderr: `print` in an unbuffered Python writes the
    end of the line by itself, and another process's line may come between.
    """
    sys.stderr.write(f"hvdft: {text}\n")
    sys.stderr.flush()
