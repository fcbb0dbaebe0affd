"""The only way in which processes of hvd_ft print messages for the user."""

import sys


def say(text: object) -> None:
    """Writes a line to stderr with the prefix of all of hvd_ft's lines.

    It is a single write(2), because processes share their stderr: `print` in an unbuffered Python
    writes the newline separately, and another process's line may come in between.
    """
    sys.stderr.write(f"hvdft: {text}\n")
    sys.stderr.flush()
