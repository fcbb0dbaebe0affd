"""The training loops of this process: their numbers, their snapshots and their ends.

Loops are numbered in the order in which the script begins them, whoever runs them (the Keras
callback or a `State`), so a restarted script finds its snapshots by counting the same way.
"""

import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from hvd_ft.errors import HvdFtError, NoRoomError
from hvd_ft.native.core import Worker
from hvd_ft.native.types import Snapshots
from hvd_ft.system.say import say
from hvd_ft.worker import rosters, slow_drill
from hvd_ft.worker.divergence import DivergenceWatch, divergence_watch, variables_of
from hvd_ft.worker.divergence_rule import Kind
from hvd_ft.worker.flip_drill import FlipDrills, own_drills
from hvd_ft.worker.memory_check import check_memory
from hvd_ft.worker.restart import latest, latest_whole
from hvd_ft.worker.resumed import ResumedLoops, resumed
from hvd_ft.worker.rosters import Contents
from hvd_ft.worker.shared_contents import Arrays
from hvd_ft.worker.snapshot_interval import SnapshotInterval
from hvd_ft.worker.snapshot_schedule import SnapshotClock, SnapshotSchedule
from hvd_ft.worker.snapshot_writer import Cut, SnapshotWriter


class ProcessLoops:
    """What all training loops of this process have in common.

    Attributes:
        begun: how many have begun.
        open: the one that has begun and not ended; None: there is none.
        interval: from one snapshot to the next.
        divergences: compares what the ranks have at snapshots; None: it is not wanted.
    """

    def __init__(self) -> None:
        self.begun = 0
        self.open: TrainingLoop | None = None
        self.interval = SnapshotInterval()
        self.divergences: DivergenceWatch | None = None

    @cached_property
    def drills(self) -> FlipDrills:
        """Drills that change a bit."""
        return own_drills()

    @cached_property
    def slow_drills(self) -> slow_drill.SlowDrills:
        """Drills that slow this rank down."""
        return slow_drill.own_drills()

    @cached_property
    def leave_drills(self) -> rosters.LeaveDrills:
        """Drills that have ranks leave."""
        return rosters.own_drills()

    def begin(self, loop: "TrainingLoop") -> int:
        """Begins a loop, and ends the one that is open; returns its number."""
        if self.open is not None:
            self.open.end()
        if self.begun == 0:
            self.divergences = divergence_watch(loop.worker)
        number, self.begun, self.open = self.begun, self.begun + 1, loop
        return number


_process = ProcessLoops()


def is_open() -> bool:
    """Returns whether a training loop has begun and not ended."""
    return _process.open is not None


def phase() -> int:
    """Returns the script's phase: a number for each training loop, and for each gap between two."""
    return 2 * _process.begun - is_open()


def _with_step(contents: Contents, step: int) -> Contents:
    arrays, values = contents
    return arrays, {**values, "step": step}


class TrainingLoop:
    """One training loop.

    Args:
        worker: this process's attachment to its agent.
        snapshot_steps: steps from one snapshot to the next, at least 1; None: chosen so that
            snapshots cost no more than `snapshot_overhead`.
        snapshot_overhead: share of the training time.

    Attributes:
        worker: as above.
        number: the loop's number among those of this process.
        kinds: the known kinds of the arrays of a snapshot, by name (divergence_rule.py).
        resized: number of ranks of the job from whose checkpoint this loop resumes, and of this
            job, if they differ; else None.
        returned: whether this rank had left the job, and has just returned to it in this loop.

    Raises:
        HvdFtError: an argument is out of range.
    """

    def __init__(
        self, worker: Worker, snapshot_steps: int | None, snapshot_overhead: float
    ) -> None:
        self.number = -1
        self.worker = worker
        self.kinds: Mapping[str, Kind] = {}
        self.resized: tuple[int, int] | None = None
        self._process = _process
        self._given: ResumedLoops | rosters.HandedOver | None = None  # this loop continues from it
        self._returned_at = -1  # step
        self._schedule = SnapshotSchedule(
            worker, _process.interval, snapshot_steps, snapshot_overhead
        )
        self._clock = SnapshotClock()
        self._writer = SnapshotWriter(worker)
        self._said_no_room = False
        self._has_snapshot = False

    @property
    def tells(self) -> bool:
        """Whether this process prints messages that concern the whole job."""
        return self.worker.rank == 0 and self.worker.incarnation == 0

    def begin(self) -> dict[str, Any] | None:
        """Begins the loop: collectives from here on belong to it.

        A loop that is still open ends here, without a final snapshot: the script may have called
        collectives since its last step, which a restarted script has to repeat.

        Returns:
            The values of the loop's snapshot if this process continues from one, otherwise None.
        """
        self.number = self._process.begin(self)
        self._schedule.begin(self.worker.loop_begin(self.number))
        self._clock.start()
        left = latest_whole(self.worker, self.number) if self.worker.incarnation > 0 else None
        if left is not None:  # by an earlier process of this rank
            self._has_snapshot = True
            self._schedule.snapshot_step = left[1]["step"]
            return left[1]
        self._given = self._handed_over() or self._earlier_job()
        return None if self._given is None else self.snapshot()[1]

    @property
    def returned(self) -> bool:
        """Whether this rank had left the job, and has returned to it at a boundary of this loop."""
        return self._returned_at >= 0

    def _handed_over(self) -> rosters.HandedOver | None:
        """Waits for the roster with which this rank returns, if it does; then returns the state.

        Raises:
            SystemExit: the loop has ended before.
        """
        if self.worker.incarnation == 0 or not self.worker.returns(self.number):
            return None
        say(f"rank {self.worker.rank} is back, and waits for the next step boundary")
        comes = self.worker.await_return(self.number)
        rosters.follow()
        if not comes:
            say(
                f"rank {self.worker.rank} came back too late for training loop {self.number}, and "
                "stays out of the job"
            )
            raise SystemExit(0)
        found = rosters.HandedOver()
        self._returned_at = found.step
        self._schedule.unsaved = True
        say(f"rank {self.worker.rank} returns to the job at step {found.step}")
        return found

    def _earlier_job(self) -> ResumedLoops | None:
        """Returns the checkpoint of an earlier job from which this loop resumes.

        It is read only when it is needed, because a host that is new in the job may not have it.
        """
        found = resumed(self.worker.rank, self.worker.size)
        if found is None or not found.has(self.number):
            return None
        self.resized = found.resized
        self._schedule.unsaved = True
        return found

    def snapshot(self) -> tuple[Mapping[str, np.ndarray], dict[str, Any]]:
        """Returns arrays and values of the latest snapshot, valid until the next call here.

        Raises:
            HvdFtError: it is damaged.
        """
        if self._given is not None:
            arrays, values = self._given.read(self.number)
        else:
            arrays, values = latest(self.worker, self.number)
        self._schedule.snapshot_step = values["step"]
        return arrays, values

    def jump(self) -> None:
        """Continues in the op log after the latest snapshot, which must be of this job."""
        if self._given is None:
            self.worker.jump(self.number)
            rosters.follow()
        self._given = None  # it may be large
        self._schedule.jump(self.worker.cursor())
        self._clock.start()

    def set_step(self, step: int) -> None:
        """Publishes that `step` steps of this loop are done."""
        self.worker.set_step(step)
        self._process.slow_drills.strike(step, lambda: self.worker.times().compute_ns)
        # Those of earlier steps: see write().
        self.worker.cuts_passed(self.number, self._writer.passed(2 * step))
        if self.worker.incarnation > 0:  # what an earlier one has delivered may be complete by now
            self.worker.snapshot_settle(self.number)
        self._schedule.reach(step, self._clock.lap())

    def begin_roster(self, step: int, contents: Callable[[], Contents]) -> bool:
        """Begins the job's next roster if that is due at this boundary; after `set_step`.

        Ranks leave or return, and all are renumbered. In a replay the same ranks do so at the same
        boundary. A snapshot is taken there.

        Args:
            step: steps of this loop that are done.
            contents: as for `write`; ranks that return continue with rank 0's.

        Returns:
            Whether a roster has begun.

        Raises:
            SystemExit: this rank leaves the job.
        """
        self._process.leave_drills.strike(step, self.worker)
        number = self.worker.roster_due(self.number)
        if not number or step == self._returned_at:  # there one has begun
            return False
        self._settle()
        if rosters.begin(self.worker, number, step):
            rosters.hand_over(self.worker, number, lambda: _with_step(contents(), step))
            self._schedule.unsaved = True
            return True
        self.end()
        raise SystemExit(0)

    def flip(
        self, step: int, read: Callable[[], Arrays], assign: Callable[[str, np.ndarray], object]
    ) -> None:
        """Changes a bit of a variable if a drill orders it; to be called after `set_step`.

        Args:
            step: steps of this loop that are done.
            read: returns all variables by name, as a snapshot has them.
            assign: sets one of them.
        """
        try:
            self._process.drills.strike(step, read, assign)
        except HvdFtError as error:
            self.worker.fatal(str(error))

    def wants_snapshot(self, step: int) -> bool:
        """Returns whether a snapshot is due and possible: no collective may be under way.

        A rank for which a snapshot is due requests a mark, and all ranks take one at the first
        boundary after it. If the user has set an interval, ranks take snapshots at the same
        boundaries without a mark.
        """
        schedule = self._schedule
        due = schedule.is_due(self.number, step)
        if not due and schedule.is_chosen and not self._writer.busy:
            self._settle()
            due = schedule.ask(self.number, step)
        return due and self.worker.pending() == 0

    def write(self, step: int, contents: Callable[[], Contents], *, last: bool = False) -> None:
        """Takes a snapshot of this moment, `step` steps of the loop being done.

        Args:
            step: since the loop's beginning.
            contents: returns arrays and values. The arrays must never change: a large snapshot is
                copied and published while training continues.
            last: whether this is the snapshot at the loop's end.
        """
        self._settle()
        begin_ns = time.perf_counter_ns()
        self._schedule.take(step)
        arrays, values = contents()
        # The last one comes after another one of the same step.
        cut = Cut(self.number, 2 * step + 1 + last, self._schedule.alone)
        watch, taken = self._process.divergences, False
        if watch is not None:
            watch.expect(cut.loop, cut.number, step, variables_of(list(arrays), self.kinds))
        try:
            taken = self._writer.write(cut, *_with_step((arrays, values), step))
        except NoRoomError as error:
            self._say_no_room(error)
        if watch is not None and not taken:
            watch.withdraw(cut.loop, cut.number)
        self._clock.stalled(begin_ns)

    def check_room(self, state_bytes: int, gradient_bytes: int) -> None:
        """Announces how much memory the loop will need, and warns if there is less.

        Args:
            state_bytes: bytes of this rank's variables in a snapshot.
            gradient_bytes: bytes of the trainable variables.
        """
        check_memory(self.worker, state_bytes, gradient_bytes, self._schedule.most_steps)

    def _say_no_room(self, error: HvdFtError) -> None:
        """Warns that training continues without this snapshot, and that the previous one stays."""
        if self._said_no_room:
            return
        self._said_no_room = True
        kept = "its older snapshot" if self._has_snapshot else "no snapshot"
        say(f"rank {self.worker.rank} continues with {kept}, so a restart replays more: {error}")

    def can_finish(self) -> bool:
        """Returns whether a final snapshot can be taken: none yet, and no collective in flight."""
        return not self.worker.loop_ended(self.number) and self.worker.pending() == 0

    def end(self) -> None:
        """Ends the loop; without a final snapshot a restarted process repeats its last steps."""
        self._settle()
        if self._process.divergences is not None:
            self._process.divergences.finish()
        self._writer.close()
        self.worker.loop_end(self.number)
        if self._process.open is self:
            self._process.open = None

    def _settle(self) -> None:
        """Waits for an unfinished snapshot, if there is one, and reports its cost."""
        if not self._clock.has_stall:
            return
        begin_ns = time.perf_counter_ns()
        copy_ns = 0
        try:
            copy_ns = self._writer.settle()
            self._has_snapshot = True
        except NoRoomError as error:
            self._say_no_room(error)
        training_ns, stall_ns = self._clock.settled(begin_ns)
        self._schedule.add_cost(stall_ns, copy_ns, self._writer.fresh)
        steps = self._schedule.interval_steps
        self.worker.count_snapshots(
            Snapshots(steps=steps, training_ns=training_ns, stall_ns=stall_ns, copy_ns=copy_ns)
        )
