"""What every CSV file and picture of results has in common."""

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence

from matplotlib.figure import Figure

from hvd_ft.reports.plot import png
from hvd_ft.system.writable import write_file

COLOURS = {"ft": "#0072B2", "mpi": "#D55E00", "copies": "#999999"}


def write_csv(
    path: str | os.PathLike[str],
    facts: Mapping[str, str],
    columns: Sequence[str],
    lines: Iterable[Sequence[object]],
) -> None:
    """Writes lines below a header of columns, with the machine's facts as comments on top.

    Raises:
        NotWrittenError: The file cannot be written.
    """
    text = io.StringIO(newline="")
    text.writelines(f"# {name}: {value}\n" for name, value in facts.items())
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(lines)
    write_file(path, text.getvalue().encode())


def write_picture(path: str | os.PathLike[str], figure: Figure) -> None:
    """Writes a picture as a PNG file.

    Raises:
        NotWrittenError: The file cannot be written.
    """
    write_file(path, png(figure))
