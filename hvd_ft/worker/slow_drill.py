"""A drill that slows a rank down (`--inject rank=R,slow=1.3`): its computing takes longer."""

import os
import time
from collections.abc import Callable

from hvd_ft.system.say import say

_VARIABLE = "HOROVOD_FT_INJECT"  # as job/drills.py has written it


class SlowDrills:
    """The slow drills of this process: of those that have begun, the one that slows down most.

    Args:
        entries: `HOROVOD_FT_INJECT`, point:op:step:way:value:text;…
        sleep: takes seconds.
    """

    def __init__(self, entries: str, sleep: Callable[[float], None] = time.sleep) -> None:
        parts = [entry.split(":", 5) for entry in entries.split(";") if entry]
        self._open = [(int(p[2]), int(p[4]) / 100, p[5]) for p in parts if p[3] == "w"]
        self._sleep = sleep
        self._factor = 1.0
        self._seen_ns: int | None = None  # time spent computing until the latest step
        self._slept_ns = 0.0  # since, by this drill

    def strike(self, step: int, compute_ns: Callable[[], int]) -> None:
        """Sleeps for as long as the step was to take longer.

        Args:
            step: steps of the training loop that are done.
            compute_ns: returns how long the rank has computed so far.
        """
        if not self._open and self._factor == 1.0:
            return
        for drill in [each for each in self._open if each[0] <= step]:
            self._open.remove(drill)
            self._factor = max(self._factor, drill[1])
            say(f"drill: {drill[2]}")
        now = compute_ns()
        if self._factor > 1.0 and self._seen_ns is not None:
            own = max(now - self._seen_ns - self._slept_ns, 0.0)
            self._slept_ns = own * (self._factor - 1)
            self._sleep(self._slept_ns / 1e9)
        self._seen_ns = now


def own_drills() -> SlowDrills:
    """Returns those of this process."""
    return SlowDrills(os.environ.get(_VARIABLE, ""))
