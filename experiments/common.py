"""What the experiments share: how their results are written, and how they end."""

import csv
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from hvd_ft.errors import HvdFtError


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
    """Runs an experiment and ends with its exit code; a failed job is told in one line."""
    try:
        sys.exit(main())
    except HvdFtError as error:
        sys.exit(f"hvdft: {error}")
