"""A worker without an agent: op log, loops and snapshots in memory, outliving incarnations."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from tempfile import TemporaryDirectory

import pytest

from hvd_ft import native
from hvd_ft.native.types import Event, Log, Memory, Snapshot, Snapshots
from hvd_ft.worker import rosters, training_loop


class Killed(Exception):
    """Stands for SIGKILL."""


@dataclass
class FakeLoop:
    begin: int
    snapshot: Snapshot | None = None
    data: bytes | None = None
    ended: bool = False

    @property
    def position(self) -> int:
        return -1 if self.snapshot is None else self.snapshot.position


@dataclass
class FakeArena:
    """What outlives a worker."""

    log: list[str | None] = field(default_factory=list)  # signatures; None: cut
    loops: dict[int, FakeLoop] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    directory: TemporaryDirectory = field(
        default_factory=partial(TemporaryDirectory, dir="/dev/shm")
    )


class FakeWorker:
    """`native.Worker`, as far as the TensorFlow side uses it; alone in its job."""

    def __init__(self, arena: FakeArena, incarnation: int) -> None:
        self.rank, self.size, self.incarnation = 0, 1, incarnation
        self.nodes, self.step_bytes, self.directory = 1, 0, arena.directory.name
        self.step = 0
        self.busy = 0
        self.jumps: list[int] = []
        self.orderly = False
        self.snapshots = 0
        self.costs: list[Snapshots] = []
        self.log_facts = Log(0, 1 << 40, 0, 1)
        self.message_facts = (0, 1)
        self.memory_facts = Memory(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, limit=1 << 40)
        self.stop_code = -1
        self.stopped = ""
        self._room = bytearray()
        self._mark = -1
        self._arena = arena
        self._cursor = 0

    def collective(self, signature: str) -> None:
        """An op: appended to the log, or served from it if it is the same one."""
        log = self._arena.log
        if self._cursor == len(log):
            log.append(signature)
        assert log[self._cursor] == signature, f"op {self._cursor}"
        self._cursor += 1

    def cursor(self) -> int:
        return self._cursor

    def pending(self) -> int:
        return self.busy

    def loop_begin(self, loop: int) -> int:
        place = self._arena.loops.setdefault(loop, FakeLoop(self._cursor))
        assert place.begin == self._cursor, "the prologue differs"
        return place.begin

    def loop_end(self, loop: int) -> None:
        self._arena.loops[loop].ended = True

    def loop_ended(self, loop: int) -> bool:
        return self._arena.loops[loop].ended

    def snapshot_begin(self, loop: int, cut: int, position: int) -> bool:
        return True

    def snapshot_settle(self, loop: int) -> bool:
        return True

    def snapshot_owed(self, loop: int) -> bool:
        return False

    def snapshot_room(self, loop: int, size: int) -> memoryview:
        self._room = bytearray(size)
        return memoryview(self._room)

    def snapshot_deliver(self, loop: int, snapshot: Snapshot) -> None:
        place = self._arena.loops[loop]
        assert place.snapshot is None or snapshot.cut > place.snapshot.cut
        place.data, place.snapshot = bytes(self._room), snapshot
        assert len(place.data) == snapshot.bytes
        for op in range(place.begin, place.position):
            self._arena.log[op] = None
        self.snapshots += 1

    def snapshot_give_up(self, loop: int, cut: int) -> None:
        pass

    def snapshot_ticket(self) -> int:
        return 0

    def any_away(self) -> bool:
        return False

    def node_ranks(self, position: int | None = None) -> list[int]:
        return [0]

    def reference(self, position: int) -> int | None:
        return None

    def present(self) -> list[int]:
        return self.node_ranks()

    def returns(self, loop: int) -> bool:
        return False

    def roster_due(self, loop: int) -> int:
        return 0

    def fingerprints_publish(self, loop: int, cut: int, data: bytes) -> None:
        pass

    def fatal(self, message: str) -> None:
        self.stopped = message

    def cuts_passed(self, loop: int, cut: int) -> None:
        pass

    def mark_request(self, position: int) -> None:
        self._mark = max(self._mark, position)

    def mark_passed(self, loop: int, since: int) -> bool:
        return since <= self._mark < self._cursor

    def count_snapshots(self, more: Snapshots) -> None:
        self.costs.append(more)

    def log(self) -> Log:
        return self.log_facts

    def memory(self) -> Memory:
        return self.memory_facts

    def message_room(self) -> tuple[int, int]:
        return self.message_facts

    def snapshot_read(self, loop: int) -> tuple[Snapshot, memoryview] | None:
        place = self._arena.loops[loop]
        if place.data is None or place.snapshot is None:
            return None
        return place.snapshot, memoryview(place.data)

    def jump(self, loop: int) -> None:
        self._cursor = self._arena.loops[loop].position
        self.jumps.append(loop)

    def set_step(self, step: int) -> None:
        self.step = step

    def orderly_exit(self) -> None:
        self.orderly = True

    def events(self, start: int = 0) -> list[Event]:
        return self._arena.events[start:]


@contextmanager
def incarnation(arena: FakeArena, number: int) -> Iterator[FakeWorker]:
    """A separate process, from hvd_ft's point of view."""
    worker = FakeWorker(arena, number)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "worker", lambda: worker)
        patch.setenv("HOROVOD_FT_LOG_STEPS", "6")  # as an agent sets it
        patch.setattr(training_loop, "_process", training_loop.ProcessLoops())
        patch.setattr(rosters, "_begin", None)  # Horovod may be initialised in this process
        patch.setattr(rosters, "_follow", None)
        yield worker
