"""Writing results: what every CSV file and picture has in common."""

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from hvd_ft.errors import HvdFtError

COLOURS = {"ft": "#0072B2", "mpi": "#D55E00", "copies": "#999999"}


def write_csv(
    path: str | os.PathLike[str],
    facts: Mapping[str, str],
    columns: Sequence[str],
    lines: Iterable[Sequence[object]],
) -> None:
    """Writes lines under a head of columns, the machine's facts as comments on top.

    Raises:
        HvdFtError: The file cannot be written.
    """
    try:
        with Path(path).open("w", newline="") as file:
            file.writelines(f"# {name}: {value}\n" for name, value in facts.items())
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(lines)
    except OSError as error:
        raise HvdFtError(f"cannot write {path}: {error.strerror}; give another --csv") from error


def write_picture(path: str | os.PathLike[str], figure: Figure) -> None:
    """Writes a picture as a PNG file.

    Raises:
        HvdFtError: The file cannot be written.
    """
    try:
        figure.savefig(path, format="png", dpi=150)
    except OSError as error:
        raise HvdFtError(f"cannot write {path}: {error.strerror}; give another --png") from error
