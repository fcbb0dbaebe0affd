"""The hosts of a job from a file, as of mpirun and horovodrun: `n0 slots=4`, one a line."""

import re
from pathlib import Path

from hvd_ft.errors import HvdFtError

_LINE = re.compile(r"(?P<name>[^\s:#=]+)(?:(?:\s+slots\s*=\s*|:)(?P<slots>[0-9]+))?", re.ASCII)


def read_host_file(path: str) -> str:
    """Returns the hosts of a file in the form of -H.

    Args:
        path: of the file. `n0` alone has one slot, as has `n0:1`; `#` begins a comment.

    Raises:
        HvdFtError: it cannot be read, names no host, or has a line of another form.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise HvdFtError(f"cannot read --hostfile {path} ({reason}); give a text file") from None
    hosts = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].strip()
        if not words:
            continue
        found = _LINE.fullmatch(words)
        if found is None:
            raise HvdFtError(
                f"--hostfile {path}, line {number}: {words!r} is not a host and its slots; give "
                "lines such as: n0 slots=4"
            )
        hosts.append(f"{found['name']}:{found['slots'] or 1}")
    if not hosts:
        raise HvdFtError(f"--hostfile {path} names no host; give lines such as: n0 slots=4")
    return ",".join(hosts)
