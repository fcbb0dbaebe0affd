"""How many steps lie between two snapshots: a rule over what steps and snapshots have taken.

Pure: `training_loop.py` holds the clock. Every rank decides for itself, for the log is cut at the
oldest of all ranks' latest snapshots wherever these lie. The rules, the first one that applies:

1. The log must not outgrow the arena. When half of its room is taken, those ranks take a snapshot
   at once whose latest one lies in the log's older half: only theirs can free something. That goes
   over the budget if it has to.
2. The first snapshot of a process comes after a few steps, so that an early crash costs little and
   what a snapshot costs is known. A large one that has found fresh memory tells nothing of that: a
   few steps later there is another, up to the first that is written where one was before. A later
   training loop knows all this from the beginning; so a script that calls `fit` again and again
   has a snapshot at the end of each, and others where the budget allows.
3. Then as few steps as the budget allows. So there is no bound on what has to be replayed but the
   budget's: snapshots of 0.1 s at 1 % are 10 s of training apart. What has gone over it, as the
   first ones do, is saved by intervals of up to twice that length; so is the last one to come.
4. But not more often than SHORTEST_SECONDS: replaying so little costs nothing, and everyone who
   follows the job is woken by a snapshot.
"""

from collections import deque
from math import ceil
from statistics import fmean, median

from hvd_ft.errors import HvdFtError
from hvd_ft.native.types import Log

FIRST_STEPS = 3
SHORTEST_SECONDS = 0.2
DEFAULT_OVERHEAD = 0.01
_RECENT_STEPS = 64
_RECENT_SNAPSHOTS = 4


class SnapshotInterval:
    """The number of steps from one snapshot to the next, in all training loops of a process."""

    def __init__(self) -> None:
        self._overhead = DEFAULT_OVERHEAD
        self._steps: deque[float] = deque(maxlen=_RECENT_STEPS)  # of this loop
        self._step: float | None = None  # seconds; until a loop has some, as in the one before
        self._snapshots: deque[float] = deque(maxlen=_RECENT_SNAPSHOTS)
        self._trained = self._spent = 0.0  # seconds in all
        self._fresh = False  # the latest of this loop has found fresh memory
        self._owed = 0.0  # seconds of snapshots beyond the budget, when the latest was taken

    def begin_loop(self, overhead: float) -> None:
        """A training loop begins, whose steps may take longer or shorter than those before.

        Args:
            overhead: share of the training time that snapshots may take.
        """
        self._overhead = overhead
        self._steps.clear()
        self._fresh = False

    def add_steps(self, steps: int, seconds: float) -> None:
        """So many steps have taken `seconds`, without the snapshot after them."""
        self._steps.append(seconds / steps)
        # The median, as a step in which the others waited for a dead rank, or traced a function,
        # tells nothing.
        if self._step is None or len(self._steps) >= FIRST_STEPS:
            self._step = median(self._steps)
        self._trained += seconds

    def add_snapshot(self, seconds: float, fresh: bool = False) -> None:
        """A snapshot has cost `seconds`.

        Args:
            fresh: much of that was for memory that nobody had used before.
        """
        if self._fresh and not fresh:
            self._snapshots.clear()
        self._fresh = fresh
        self._snapshots.append(seconds)
        self._spent += seconds
        last = fmean(self._snapshots)
        self._owed = max(self._spent + last - self._overhead * self._trained, 0.0)

    @property
    def steps(self) -> int:
        """From the latest snapshot to the next."""
        if self._step is None or not self._snapshots or self._fresh:
            return FIRST_STEPS
        cost = fmean(self._snapshots)  # not the median: a dear one has to be paid for too
        seconds = max((cost + min(self._owed, cost)) / self._overhead, SHORTEST_SECONDS)
        return max(ceil(seconds / max(self._step, 1e-9)), 1)


def log_wants_snapshot(log: Log, own_ops: int) -> bool:
    """Tells whether this rank should take a snapshot because the log fills up.

    Args:
        log: what it holds.
        own_ops: ops since this rank's latest snapshot.
    """
    fills = 2 * log.bytes > log.bytes_room or 2 * log.ops > log.ops_room
    return fills and own_ops > 0 and 2 * own_ops >= log.ops


def messages_want_snapshot(own_bytes: int, share_bytes: int) -> bool:
    """Tells whether this rank should take a snapshot because messages fill the arena.

    Args:
        own_bytes: sent and received since this rank's latest snapshot.
        share_bytes: of the room that is left.
    """
    return own_bytes > share_bytes / 2


def check_snapshot_settings(steps: int | None, overhead: float) -> None:
    """Raises HvdFtError unless `steps` is None or an int of at least 1 and 0 < `overhead` < 1."""
    if steps is not None and (not isinstance(steps, int) or steps < 1):
        raise HvdFtError(
            f"snapshot_steps={steps!r} is not allowed: give the number of steps from one snapshot "
            "to the next, at least 1, or None to have it chosen"
        )
    if not isinstance(overhead, int | float) or not 0 < overhead < 1:
        raise HvdFtError(
            f"snapshot_overhead={overhead!r} is not allowed: give the share of training time that "
            "snapshots may take, above 0 and below 1, such as 0.01"
        )
