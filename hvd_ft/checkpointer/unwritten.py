"""The note in a job's directory that its latest checkpoints could not be written.

The writer of rank 0's node makes the note. If the training has ended well and rank 0's agent finds
the note, the job does not end with 0: a checkpoint is a result like the report.
"""

import contextlib
import os
from pathlib import Path

_NAME = "unwritten"


def note(arenas: str | os.PathLike[str], text: str) -> None:
    """Records the line for the end of the job; "" if the latest checkpoint is written.

    Args:
        arenas: directory of the node's arenas.
        text: the line for the user.
    """
    path = Path(arenas, _NAME)
    with contextlib.suppress(OSError):  # a full /dev/shm: what has happened was said
        if text:
            path.write_text(text)
        else:
            path.unlink(missing_ok=True)


def noted(arenas: str | os.PathLike[str]) -> str:
    """Returns what was noted; "" if nothing was."""
    try:
        return Path(arenas, _NAME).read_text(errors="replace")
    except OSError:
        return ""
