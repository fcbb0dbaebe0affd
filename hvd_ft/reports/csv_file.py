"""CSV files with the facts under which their lines were measured."""

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence

from hvd_ft.system.writable import write_file


def write_csv(
    path: str | os.PathLike[str],
    facts: Mapping[str, str],
    columns: Sequence[str],
    lines: Iterable[Sequence[object]],
) -> None:
    """Writes lines below a header of columns, with facts as comments on top.

    Raises:
        NotWrittenError: The file cannot be written.
    """
    text = io.StringIO(newline="")
    text.writelines(f"# {name}: {value}\n" for name, value in facts.items())
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(lines)
    write_file(path, text.getvalue().encode())
