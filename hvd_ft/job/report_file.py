"""The file in a job's directory that says where its report is, on rank 0's host."""

import contextlib
import os

from hvd_ft.system.whole_file import write_line

_NAME = "report"


def has_file(report: str | None) -> bool:
    """Returns whether a report is a file, with others beside it.

    Args:
        report: its path, if there is one; that of --picture alone is in memory.
    """
    return report is not None and not report.startswith(("/proc/", "/dev/"))


def write_report_path(directory: str, path: str) -> None:
    """Notes where the report is, for `hvdft status`; the job does not depend on it.

    Args:
        directory: of the job, on rank 0's host.
        path: of the report.
    """
    with contextlib.suppress(OSError):
        write_line(os.path.join(directory, _NAME), os.path.abspath(path))


def read_report_path(directory: str) -> str | None:
    """Returns the path of a job's report; None if there is none, or it is not known here.

    Args:
        directory: of the job, on this host.
    """
    with contextlib.suppress(OSError):
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(
            os.open(os.path.join(directory, _NAME), flags), encoding="utf-8", errors="replace"
        ) as file:
            return file.readline(1 << 12).rstrip("\n") or None
    return None
