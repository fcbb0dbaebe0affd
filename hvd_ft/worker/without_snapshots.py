"""Warns once when a training begins that has no snapshots.

A restarted rank then repeats everything from its beginning, from a log that only grows. That is
correct, but seldom intended.
"""

from functools import cache

from hvd_ft.system.say import say
from hvd_ft.worker import training_loop


def look(remedy: str) -> None:
    """Says once that a training takes no snapshots, unless a training loop is open.

    Args:
        remedy: how the framework at hand gets snapshots.
    """
    if not training_loop.is_open():
        _tell(remedy)


@cache
def _tell(remedy: str) -> None:
    say(
        "this training takes no snapshots, so a restarted rank repeats it from its "
        f"beginning, and the log that this needs only grows: {remedy}"
    )
