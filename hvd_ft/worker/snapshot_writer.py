"""Writes snapshots into the arena: small ones at once, large ones while training continues.

TensorFlow helps with the latter: updating a variable whose memory is referenced elsewhere allocates
new memory for it. So the memory referenced at a step boundary keeps its values, and another thread
can copy it. Each reference is dropped as soon as its copy is made, so later updates of the next
step need no new memory.

The ranks of a node store data that is equal on all of them once (shared_contents.py). In a job on
several nodes the data also has to be equal on a rank of another node, their *reference*. So if the
node is lost, this rank still has the shared data, and the rest is in the parts that the mirror
passes on.
"""

import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hvd_ft.errors import NoRoomError
from hvd_ft.native.core import Worker, failpoint
from hvd_ft.native.types import Point, Snapshot
from hvd_ft.system.say import say
from hvd_ft.worker.shared_contents import (
    Arrays,
    Part,
    agreement,
    differing,
    fingerprints,
    freeze,
    shared,
)

LARGE_SNAPSHOT_BYTES = 2 << 20  # below this size the copy is faster than two threads that compete
SLOTS = 2  # slots for a loop's snapshots, used in turn
_TIMEOUT = "HOROVOD_FT_SNAPSHOT_SECONDS"  # from the agent
_DEFAULT_SECONDS = "30"
_LOOK_SECONDS = 0.1  # at whether these will never come


@dataclass(frozen=True)
class Cut:
    """A step boundary of a training loop at which a snapshot is taken.

    Attributes:
        loop: number of the training loop.
        number: number of the cut, above those of the loop's earlier cuts.
        alone: whether this rank takes the snapshot without the others.
    """

    loop: int
    number: int
    alone: bool = False


class SnapshotWriter:
    """Writes one snapshot of a training loop at a time.

    If other ranks have once not come to a cut in time, this process takes all later snapshots
    alone. If ranks of other nodes have not published theirs in time, it no longer waits for them.

    Args:
        worker: this process's attachment to its agent.
    """

    _alone = False  # of this process, in whatever loop
    _apart = False  # likewise

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        # The interpreter waits for its threads at exit, and so for an unfinished snapshot.
        self._thread = ThreadPoolExecutor(1, "hvd_ft snapshot")
        self._copy: Future[int] | None = None
        self._cut = 0  # number of the latest
        self._written = 0
        self._large = False
        # For other ranks' fingerprints and parts.
        self._timeout_seconds = float(os.environ.get(_TIMEOUT) or _DEFAULT_SECONDS)

    @property
    def fresh(self) -> bool:
        """Whether the latest snapshot was large and written to fresh memory.

        The system has to clear and map such memory, which takes several times as long.
        """
        return self._large and self._written <= SLOTS

    @property
    def busy(self) -> bool:
        """Whether a snapshot is still being copied."""
        return self._copy is not None and not self._copy.done()

    def passed(self, number: int) -> int:
        """Returns the last cut, at most `number`, up to which this writer no longer takes part."""
        return min(number, self._cut - 1) if self.busy else number

    def write(self, cut: Cut, arrays: Arrays, values: Mapping[str, Any]) -> bool:
        """Writes the loop's next snapshot, and publishes it.

        Args:
            cut: the cut at which the snapshot is taken.
            arrays: large ones (`MIN_SHARED_BYTES`) must never change; the others are copied before
                this returns. The caller should not keep references to them.
            values: as for `snapshot_format.encode`.

        Returns:
            False if this snapshot is left out: other ranks' parts of the previous one have not come
            in time, or an earlier incarnation has already delivered this rank's part.

        Raises:
            NoRoomError: the arena has no room.
        """
        assert self._copy is None, "settle() the one before first"
        self._cut = cut.number
        position = self._worker.cursor()
        size = sum(array.nbytes for array in arrays.values())
        kept, frozen = freeze(arrays, values)
        del arrays
        begun, own = self._begin(cut, position, kept)
        if not begun:
            if begun is None:
                self._wait_no_more_for_other_hosts()
                self._worker.snapshot_give_up(cut.loop, cut.number)
                self._worker.mark_request(position)  # for one that all take
            else:
                self._copy = self._thread.submit(self._await_parts, cut.loop, position)
            return False
        self._large = size + frozen.nbytes >= LARGE_SNAPSHOT_BYTES
        self._written += 1
        if self._large:
            self._copy = self._thread.submit(self._finish, cut, position, kept, frozen, own)
        else:
            self._finish(replace(cut, alone=True), position, kept, frozen, own)
        return True

    def _begin(self, cut: Cut, position: int, arrays: Arrays) -> tuple[bool | None, bytes | None]:
        """Begins the snapshot as soon as the one before leaves room.

        A rank that has to wait publishes its fingerprints first, because it may be waiting for a
        rank that has come back, and that needs them to take this very snapshot. A rank that has
        come back publishes its own before it trains on; otherwise the ranks that wait would take
        it to have passed the boundary without a snapshot.

        Returns:
            As `Worker.snapshot_begin`, None if it takes too long; the fingerprints if they are out.
        """

        def begin() -> bool | None:
            return self._worker.snapshot_begin(cut.loop, cut.number, position)

        begun = begin()
        is_back = self._worker.nodes > 1 and self._worker.incarnation > 0 and self._written == 0
        if begun is False or (begun and not is_back):
            return begun, None
        own = self._publish(cut, position, arrays)
        return self._await(begin) if begun is None else begun, own

    def _publish(self, cut: Cut, position: int, arrays: Arrays) -> bytes:
        own = fingerprints(arrays, cut.number, position)
        self._worker.fingerprints_publish(cut.loop, cut.number, own)
        return own

    def _wait_no_more_for_other_hosts(self) -> None:
        """Stops waiting for other hosts once a snapshot could not begin because of them."""
        if self._apart or self._worker.nodes == 1 or self._worker.stop_code >= 0:
            return
        SnapshotWriter._apart = True
        self._worker.snapshot_apart()
        say(
            f"rank {self._worker.rank} no longer waits for other hosts' snapshots, as some did not "
            f"come within {self._timeout_seconds:g} s: if such a host is lost, its state "
            "may be lost with it"
        )

    def settle(self) -> int:
        """Waits until no snapshot is being copied.

        Returns:
            The CPU time in ns that the other thread has used for the snapshot since the last call.

        Raises:
            NoRoomError: the arena had no room for it.
        """
        copy, self._copy = self._copy, None
        return 0 if copy is None else copy.result()

    def close(self) -> None:
        """Ends the copying thread; nothing may be written afterwards."""
        self._thread.shutdown()

    def _await_parts(self, loop: int, position: int) -> int:
        """Waits until other ranks have delivered their parts; else requests another snapshot."""
        begin = time.thread_time_ns()
        settled = self._await(lambda: self._worker.snapshot_settle(loop))
        if settled is False or self._worker.snapshot_owed(loop):
            self._worker.mark_request(position)
        return time.thread_time_ns() - begin

    def _finish(
        self,
        cut: Cut,
        position: int,
        arrays: dict[str, np.ndarray],
        values: np.ndarray,
        own: bytes | None,
    ) -> int:
        begin = time.thread_time_ns()
        ranks = self._worker.node_ranks(position)
        own = own or self._publish(cut, position, arrays)
        common, number = self._agree(cut, position, arrays) if not cut.alone else ([], 0)
        index = ranks.index(self._worker.rank)
        part = Part(arrays, values, common, index, len(ranks), prints=own)
        arrays.clear()  # each array's memory is let go when it is copied
        try:
            room = np.frombuffer(self._worker.snapshot_room(cut.loop, part.bytes), np.uint8)
        except NoRoomError:
            self._worker.snapshot_give_up(cut.loop, cut.number)
            raise
        for _ in part.write(room):
            failpoint(Point.SNAPSHOT_WRITE, position)
        stripe = part.stripe if common else 0
        snapshot = Snapshot(cut.number, position, part.bytes, stripe, number)
        self._worker.snapshot_deliver(cut.loop, snapshot)
        if common:
            self._await(lambda: self._worker.snapshot_settle(cut.loop))
        return time.thread_time_ns() - begin

    def _agree(self, cut: Cut, position: int, arrays: Arrays) -> tuple[list[str], int]:
        """Returns the names of the arrays that the node's ranks share, and the agreement."""
        ranks = self._all_fingerprints(cut, position)
        differ = None if ranks is None else differing(ranks)
        if ranks is None or differ is None:
            self._worker.snapshot_give_up(cut.loop, cut.number)
            return [], 0
        names = shared(arrays, differ)
        return names, agreement(ranks) if names else 0

    def _all_fingerprints(self, cut: Cut, position: int) -> list[bytes] | None:
        """Returns the fingerprints of node and reference; None if some never come."""
        wanted = self._worker.node_ranks(position)
        if (reference := self._worker.reference(position)) is not None:
            wanted.append(reference)
        found: dict[int, bytes | None] = {}

        def look() -> bool:
            for rank in wanted:
                if rank not in found:
                    came, data = self._worker.fingerprints(rank, cut.loop, cut.number)
                    if came:
                        found[rank] = data
            return len(found) == len(wanted) or None in found.values()

        if len(wanted) == 1 or self._alone:
            return None
        if not self._await(lambda: look() or None):
            if self._worker.stop_code < 0:
                SnapshotWriter._alone = True
                say(
                    f"rank {self._worker.rank} takes its snapshots alone from now on: other ranks "
                    f"did not come to the same step within {self._timeout_seconds:g} s, so each "
                    "stores what is equal on all of them"
                )
            return None
        ranks = [data for _, data in sorted(found.items()) if data is not None]
        return ranks if len(ranks) == len(wanted) else None

    def _await(self, done: Callable[[], bool | None]) -> bool | None:
        """Returns the result of `done()` as soon as other ranks' progress makes it other than None.

        Returns None if that takes too long while all ranks of the node run, or if the job is being
        stopped.
        """
        until = time.monotonic() + self._timeout_seconds
        while True:
            ticket = self._worker.snapshot_ticket()
            if (result := done()) is not None:
                return result
            if self._worker.any_away():  # it comes back, or the job ends
                until = time.monotonic() + self._timeout_seconds
            if time.monotonic() > until or self._worker.stop_code >= 0:
                return None
            self._worker.snapshot_wait(ticket, _LOOK_SECONDS)
