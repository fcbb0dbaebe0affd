"""When a training loop takes its snapshots, and the time that it spends on them.

snapshot_interval.py has the rules; here are the counts that they need: steps, ops and durations.
"""

import os
import time
from math import inf

from hvd_ft.native.core import Worker
from hvd_ft.worker.snapshot_interval import (
    SnapshotInterval,
    check_snapshot_settings,
    log_budget,
    log_wants_snapshot,
    messages_want_snapshot,
)


class SnapshotClock:
    """Divides the time of a training loop into steps and snapshots."""

    def __init__(self) -> None:
        self._since_ns = 0  # time up to here is accounted for
        self._training_ns = 0  # not yet reported
        self._stall_ns = 0  # of the latest snapshot, whose copy may still be under way

    def start(self) -> None:
        """Begins anew: what has passed until now is not training."""
        self._since_ns = time.perf_counter_ns()

    def lap(self) -> int:
        """Counts the time since the last call as training; returns it in ns."""
        now_ns = time.perf_counter_ns()
        lap_ns, self._since_ns = now_ns - self._since_ns, now_ns
        self._training_ns += lap_ns
        return lap_ns

    @property
    def has_stall(self) -> bool:
        """Whether a snapshot has been taken and is not reported."""
        return self._stall_ns != 0

    def stalled(self, begin_ns: int) -> None:
        """A snapshot has been taken since then, as far as training waits for it."""
        self._stall_ns = time.perf_counter_ns() - begin_ns
        self.lap()

    def settled(self, begin_ns: int) -> tuple[int, int]:
        """Training has waited since then for the rest of the snapshot.

        Returns:
            The training time in ns since the last call, and for how long the snapshot stopped it.
        """
        waited_ns = time.perf_counter_ns() - begin_ns
        self._since_ns += waited_ns  # not part of a step
        training_ns, stall_ns = self._training_ns + waited_ns, self._stall_ns + waited_ns
        self._training_ns = self._stall_ns = 0
        return training_ns, stall_ns


class SnapshotSchedule:
    """Says when a snapshot is due in one training loop.

    Args:
        worker: this process's attachment to its agent.
        interval: of all training loops of this process.
        steps: from one snapshot to the next, at least 1; None: chosen so that snapshots cost no
            more than `overhead`.
        overhead: share of the training time.

    Attributes:
        step: of the loop.
        snapshot_step: of the latest snapshot.
        unsaved: whether what was loaded, or has changed, is not in the arena.
        alone: whether the next snapshot is this rank's alone.

    Raises:
        HvdFtError: an argument is out of range.
    """

    def __init__(
        self, worker: Worker, interval: SnapshotInterval, steps: int | None, overhead: float
    ) -> None:
        check_snapshot_settings(steps, overhead)
        self._worker = worker
        self._interval = interval
        self._steps = steps
        self._overhead = overhead
        self._log_steps = int(os.environ["HOROVOD_FT_LOG_STEPS"])  # its agent has checked it
        self.step = 0
        self.snapshot_step = 0
        self.unsaved = False
        self.alone = False
        self._snapshot_op = 0
        self._last_op = self._step_op = -1  # the cursor at the latest boundary, and the one before

    def begin(self, cursor: int) -> None:
        """The loop begins at this op."""
        self._snapshot_op = self._last_op = cursor
        self._interval.begin_loop(self._overhead)

    def jump(self, cursor: int) -> None:
        """The loop continues at this op after the latest snapshot."""
        self.step = self.snapshot_step
        self._snapshot_op = self._last_op = cursor

    def reach(self, step: int, took_ns: int) -> None:
        """So many steps are done, the latest in that time."""
        if step > self.step:
            self._interval.add_steps(step - self.step, took_ns / 1e9)
        self.step = step
        self._step_op, self._last_op = self._last_op, self._worker.cursor()

    def take(self, step: int) -> None:
        """A snapshot of this step is being taken."""
        self.snapshot_step, self._snapshot_op = step, self._worker.cursor()
        self.unsaved = False

    def add_cost(self, stall_ns: int, copy_ns: int, fresh: bool) -> None:
        """Adds what a snapshot has cost.

        Args:
            stall_ns: for which it stopped training.
            copy_ns: that another thread has used. It counts as if it had stopped training too: with
                every core busy it does.
            fresh: whether much of this time was spent on fresh memory.
        """
        self._interval.add_snapshot((stall_ns + copy_ns) / 1e9, fresh)

    @property
    def most_steps(self) -> int:
        """The most steps from one snapshot to the next."""
        return self._steps or self._log_steps

    @property
    def is_chosen(self) -> bool:
        """Whether the interval is chosen here, and not the user's."""
        return self._steps is None

    @property
    def interval_steps(self) -> int:
        """From one snapshot to the next, within both budgets."""
        if self._steps is not None:
            return self._steps
        step_bytes = self._step_bytes
        by_memory = log_budget(step_bytes, self._log_steps) // step_bytes if step_bytes else inf
        return int(min(self._interval.steps, by_memory))

    @property
    def _step_bytes(self) -> int:
        """Bytes that a step adds to the log, which holds an op twice if there are several nodes."""
        return self._worker.step_bytes * (1 if self._worker.nodes == 1 else 2)

    def is_due(self, loop: int, step: int) -> bool:
        """Returns whether to take a snapshot here because all ranks do."""
        self.alone = False
        # Checkpoints are deleted some day, and those of this job have all loops.
        due = self.unsaved or self._worker.mark_passed(loop, self._snapshot_op)
        if not due and self._steps is not None:
            due = step - self.snapshot_step >= self._steps
        return due

    def ask(self, loop: int, step: int) -> bool:
        """Requests a mark if a snapshot is due; returns whether to take one without waiting."""
        log, own_ops = self._worker.log(), self._worker.cursor() - self._snapshot_op
        due = step - self.snapshot_step >= self._interval.steps
        due = due or log_wants_snapshot(log, own_ops, self._step_bytes, self._log_steps)
        due = due or messages_want_snapshot(*self._worker.message_room())
        if not due or not self._worker.snapshot_settle(loop) or self._worker.snapshot_owed(loop):
            return False
        # Without collectives there is no boundary that ranks have in common.
        self.alone = self._last_op == self._step_op
        if not self.alone:
            self._worker.mark_request(self._last_op)
        return self.alone
