"""Removes files that Intel MPI leaves in shared memory when it is killed during its start.

It creates a small file there, which all ranks map and the first rank removes; if it is killed in
between, the file stays for ever.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_DIRECTORY = Path("/dev/shm")
_PATTERN = "Intel_MPI_*"


def sweep() -> list[str]:
    """Removes this user's files of Intel MPI that no process uses.

    Returns:
        The names of the removed files.
    """
    files = [path for path in _DIRECTORY.glob(_PATTERN) if _is_ours(path)]
    if not files:
        return []
    used = set(_files_in_use())
    unused = [path for path in files if str(path) not in used]
    for path in unused:
        path.unlink(missing_ok=True)
    return [path.name for path in unused]


def _is_ours(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.lstat().st_uid == os.getuid()
    return False


def _files_in_use() -> Iterator[str]:
    """Yields the files that this user's processes have open or mapped; others cannot use them."""
    for process in Path("/proc").glob("[0-9]*"):
        # A process opens such a file, then maps it, then closes it: so look in this order.
        with contextlib.suppress(OSError):
            for descriptor in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    yield os.readlink(descriptor)
        with contextlib.suppress(OSError):
            for line in (process / "maps").read_text(errors="surrogateescape").splitlines():
                if _DIRECTORY.name in line:
                    yield line.split(maxsplit=5)[-1]
