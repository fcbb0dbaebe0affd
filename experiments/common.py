"""What the experiments share: how their results are written, and how they end."""

import csv
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from hvd_ft.errors import HvdFtError


def count(text: str) -> int:
    """Returns an option's number, which is at least 1.

    Args:
        text: The number.

    Raises:
        ArgumentTypeError: It is less, or none.
    """
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text} is no count: give a whole number, 1 or more")
    return int(text)


def output_directory(text: str) -> Path:
    """Makes the directory of an option `--output`, if it is not there.

    Args:
        text: Its path.

    Returns:
        The same.

    Raises:
        ArgumentTypeError: It cannot be made.
    """
    try:
        Path(text).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentTypeError(f"cannot make the directory {text}: {error.strerror}") from None
    return Path(text)


def write_csv(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Writes what was measured so far.

    Args:
        path: Of the file.
        rows: One a line, at least one; all with the same names, which are the columns.
    """
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def end_with(main: Callable[[], int]) -> NoReturn:
    """Runs an experiment and ends with its exit code; a failed job is reported in one line."""
    try:
        sys.exit(main())
    except HvdFtError as error:
        sys.exit(f"hvdft: {error}")
