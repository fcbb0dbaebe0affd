"""Finds warm spares: sockets in the job's directory.

Their names tell whether the spare is ready; system/handoff.py defines the messages.
"""

from collections.abc import Iterable

PREPARING, READY = "preparing-", "ready-"  # prefix of the sockets' names


def takeable(names: Iterable[str]) -> list[str]:
    """Chooses the sockets of spares from the names in a job's directory, the best first.

    Ready ones come first. A spare that is still importing is better than none: a new process would
    have to import everything from the beginning.
    """
    found = [name for name in names if name.startswith((PREPARING, READY))]
    return sorted(found, key=lambda name: (not name.startswith(READY), name))
