"""Finds warm spares: sockets in the job's directory.

Their names tell whether the spare is ready; what comes through them is in system/handoff.py.
"""

from collections.abc import Iterable

PREPARING, READY = "preparing-", "ready-"  # the sockets' names begin so


def takeable(names: Iterable[str]) -> list[str]:
    """Chooses the sockets of spares from the names in a job's directory, the best first.

    Ready ones come first. One that still imports is better than none: what it has to import a new
    process would have to import from the beginning.
    """
    found = [name for name in names if name.startswith((PREPARING, READY))]
    return sorted(found, key=lambda name: (not name.startswith(READY), name))
