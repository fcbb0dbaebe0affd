"""The rule that decides how many steps lie between two snapshots, from their durations.

Pure; snapshot_schedule.py has the clock. Every rank decides for itself when it requests a snapshot,
and all ranks take one then. The first rule that applies decides:

1. The log must not outgrow its budget of memory, `log_steps` times what a step adds to it, or
   SMALL_LOG_BYTES, nor half of the arena's room. Ranks whose latest snapshot is in the older half
   of the log ask for one in time, even over the budget of time: only theirs can free room.
2. The first snapshot of a process comes after a few steps, so that an early crash costs little and
   what a snapshot costs is known. The cost of a large one written to fresh memory is not typical: a
   few steps later there is another, until one reuses memory. A later training loop knows this cost
   from the beginning; so a script that calls `fit` repeatedly has a snapshot at the end of each,
   and others as the budget allows.
3. Then as few steps as the budget of time allows. So only the budgets bound how much has to be
   replayed: with a budget of 1 %, snapshots of 0.1 s are 10 s of training apart. If snapshots
   overrun the budget (the first ones do), later intervals are lengthened, up to twofold, until the
   overrun is paid back. The last snapshot is budgeted in advance.
4. Snapshots are at least SHORTEST_SECONDS apart: replaying so little costs nothing, and a snapshot
   wakes every process that follows the job.
"""

from collections import deque
from math import ceil
from statistics import fmean, median

from hvd_ft.errors import HvdFtError
from hvd_ft.native.types import Log

FIRST_STEPS = 3
SHORTEST_SECONDS = 0.2
DEFAULT_OVERHEAD = 0.01
SMALL_LOG_BYTES = 256 << 20
_RECENT_STEPS = 64
_RECENT_SNAPSHOTS = 4


class SnapshotInterval:
    """The number of steps from one snapshot to the next, in all training loops of a process."""

    def __init__(self) -> None:
        self._overhead = DEFAULT_OVERHEAD
        self._steps: deque[float] = deque(maxlen=_RECENT_STEPS)  # of this loop
        self._step: float | None = None  # seconds; at first the previous loop's
        self._snapshots: deque[float] = deque(maxlen=_RECENT_SNAPSHOTS)
        self._trained = self._spent = 0.0  # seconds in all
        self._fresh = False  # whether the latest of this loop was written to fresh memory
        self._owed = 0.0  # seconds of snapshots beyond the budget, when the latest was taken

    def begin_loop(self, overhead: float) -> None:
        """A training loop begins; its steps may be longer or shorter than those of earlier loops.

        Args:
            overhead: share of the training time that snapshots may take.
        """
        self._overhead = overhead
        self._steps.clear()
        self._fresh = False

    def add_steps(self, steps: int, seconds: float) -> None:
        """Adds steps that took `seconds`, without the snapshot after them."""
        self._steps.append(seconds / steps)
        # The median, as steps that waited for a dead rank or traced a function are not typical.
        if self._step is None or len(self._steps) >= FIRST_STEPS:
            self._step = median(self._steps)
        self._trained += seconds

    def add_snapshot(self, seconds: float, fresh: bool = False) -> None:
        """Adds a snapshot that cost `seconds`.

        Args:
            fresh: whether much of this time was spent on fresh memory.
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
        """Number of steps from the latest snapshot to the next."""
        if self._step is None or not self._snapshots or self._fresh:
            return FIRST_STEPS
        cost = fmean(self._snapshots)  # not the median: an expensive one has to be paid for too
        seconds = max((cost + min(self._owed, cost)) / self._overhead, SHORTEST_SECONDS)
        return max(ceil(seconds / max(self._step, 1e-9)), 1)


def log_budget(step_bytes: int, log_steps: int) -> int:
    """Returns the bytes that the log may take.

    Args:
        step_bytes: bytes that a step adds to it.
        log_steps: the most steps whose results it should hold.
    """
    return max(log_steps * step_bytes, SMALL_LOG_BYTES)


def log_wants_snapshot(log: Log, own_ops: int, step_bytes: int, log_steps: int) -> bool:
    """Returns whether this rank should ask for a snapshot because of the log's size.

    Args:
        log: its size and room.
        own_ops: ops since this rank's latest snapshot.
        step_bytes: bytes that a step adds to the log.
        log_steps: the most steps whose results it should hold.
    """
    # The ranks take the snapshot one step later.
    fills = log.bytes + step_bytes >= log_budget(step_bytes, log_steps)
    fills = fills or 2 * log.bytes > log.bytes_room or 2 * log.ops > log.ops_room
    return fills and own_ops > 0 and 2 * own_ops >= log.ops


def messages_want_snapshot(own_bytes: int, share_bytes: int) -> bool:
    """Returns whether this rank should take a snapshot because messages fill the arena.

    Args:
        own_bytes: bytes sent and received since this rank's latest snapshot.
        share_bytes: this rank's share of the room that is left.
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
