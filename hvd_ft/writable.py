"""Whether a file that is to be written at the end can be: asked before all the work."""

import os
from pathlib import Path

from hvd_ft.errors import HvdFtError


def check_writable(*paths: str | None) -> None:
    """Checks that files can be made, or made anew.

    Args:
        paths: Of the files; None stands for one that is not wanted.

    Raises:
        HvdFtError: One of them cannot.
    """
    for path in filter(None, paths):
        directory = Path(path).absolute().parent
        if Path(path).is_dir() or not os.access(directory, os.W_OK | os.X_OK):
            raise HvdFtError(f"cannot write {path}; give a file in a directory that you can write")
