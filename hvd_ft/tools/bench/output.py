"""What all pictures of results have in common."""

import os

from matplotlib.figure import Figure

from hvd_ft.reports.plot import png
from hvd_ft.system.writable import write_file

COLOURS = {"ft": "#0072B2", "mpi": "#D55E00", "gloo": "#009E73", "copies": "#999999"}


def write_picture(path: str | os.PathLike[str], figure: Figure) -> None:
    """Writes a picture as a PNG file.

    Raises:
        NotWrittenError: The file cannot be written.
    """
    write_file(path, png(figure))
