"""Writes snapshots into the arena: small ones at once, large ones while training goes on.

TensorFlow helps with the latter: updating a variable whose memory is referenced elsewhere allocates
new memory for it. So the memory referenced at a step boundary keeps its values, and another thread
can copy it. Each reference is dropped as soon as its copy is made, so later updates of the next
step need no new memory.
"""

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from hvd_ft.native.core import Worker, failpoint
from hvd_ft.native.types import Point

LARGE_PART_BYTES = 64 << 10  # smaller ones are not worth the other thread
LARGE_SNAPSHOT_BYTES = 2 << 20  # below this size the copy is faster than two threads that compete
SLOTS = 2  # slots for a loop's snapshots, used in turn


class SnapshotWriter:
    """Writes one snapshot of a training loop at a time.

    Args:
        worker: this process's attachment to its agent.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        # The interpreter waits for its threads at exit, and so for an unfinished snapshot.
        self._thread = ThreadPoolExecutor(1, "hvd_ft snapshot")
        self._copy: Future[int] | None = None
        self._written = 0
        self._large = False

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

    def write(self, loop: int, parts: Sequence[memoryview]) -> None:
        """Writes `parts` one after the other as the loop's next snapshot, and publishes it.

        Args:
            loop: number of the training loop.
            parts: large ones (`LARGE_PART_BYTES`) must never change; the others are copied
                before this returns. The caller should not keep references to them.

        Raises:
            NoRoomError: the arena has no room.
        """
        assert self._copy is None, "settle() the one before first"
        position = self._worker.cursor()
        size = sum(part.nbytes for part in parts)
        room = np.frombuffer(self._worker.snapshot_room(loop, size), np.uint8)
        self._large = size >= LARGE_SNAPSHOT_BYTES
        self._written += 1
        later: list[tuple[np.ndarray, np.ndarray]] = []
        at = 0
        for part in parts:
            to, source = room[at : at + part.nbytes], np.frombuffer(part, np.uint8)
            at += part.nbytes
            if not self._large or part.nbytes < LARGE_PART_BYTES:
                to[:] = source
            else:
                later.append((to, source))
            failpoint(Point.SNAPSHOT_WRITE, position)
        if self._large:
            later.reverse()  # to be popped from its end
            self._copy = self._thread.submit(self._finish, loop, size, position, later)
        else:
            self._worker.snapshot_publish(loop, size, position)

    def settle(self) -> int:
        """Waits until no snapshot is being copied.

        Returns:
            The CPU time in ns that the other thread has used for the snapshot since the last call.
        """
        copy, self._copy = self._copy, None
        return 0 if copy is None else copy.result()

    def close(self) -> None:
        """Ends the other thread; nothing may be written afterwards."""
        self._thread.shutdown()

    def _finish(
        self, loop: int, size: int, position: int, later: list[tuple[np.ndarray, np.ndarray]]
    ) -> int:
        begin = time.thread_time_ns()
        while later:
            np.copyto(*later.pop())  # lets other threads run Python meanwhile
            failpoint(Point.SNAPSHOT_WRITE, position)
        self._worker.snapshot_publish(loop, size, position)
        return time.thread_time_ns() - begin
