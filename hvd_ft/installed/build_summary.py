"""What the installed Horovod is built with, in the words of `horovodrun --check-build`."""

from __future__ import annotations

from hvd_ft import __version__
from hvd_ft.installed.frameworks import FRAMEWORKS
from hvd_ft.installed.horovod_source import HOROVOD_VERSION, built_for


def build_summary() -> str:
    """Returns the lines.

    Raises:
        HvdFtError: the installed Horovod cannot be identified.
    """
    built = built_for()
    frameworks = [(each.name, each in built) for each in FRAMEWORKS]
    parts = (
        ("Frameworks", [*frameworks, ("MXNet", False)]),
        (
            "Controllers",
            [("ft (shared memory, Intel MPI)", bool(built)), ("MPI", bool(built)), ("Gloo", False)],
        ),
        (
            "Tensor Operations",
            [
                ("ft", bool(built)),
                ("MPI", bool(built)),
                ("NCCL", False),
                ("DDL", False),
                ("CCL", False),
                ("Gloo", False),
            ],
        ),
    )
    lines = [f"hvd_ft v{__version__} with Horovod v{HOROVOD_VERSION}:"]
    for title, entries in parts:
        lines += ["", f"Available {title}:"]
        lines += [f"    [{'X' if there else ' '}] {name}" for name, there in entries]
    return "\n".join(lines)
