"""Large snapshots are copied while training goes on, and hold the state at their beginning."""

import threading

import numpy as np
import pytest
from fake_worker import FakeArena, FakeWorker, incarnation

from hvd_ft.native.types import Log, Snapshot
from hvd_ft.worker import snapshot_writer
from hvd_ft.worker.shared_contents import unpack
from hvd_ft.worker.snapshot_interval import FIRST_STEPS
from hvd_ft.worker.snapshot_writer import LARGE_SNAPSHOT_BYTES, Cut, SnapshotWriter
from hvd_ft.worker.training_loop import TrainingLoop

WAIT_SECONDS = 30


class Gated(FakeWorker):
    """Publishes large snapshots only once `gate` is set."""

    def __init__(self, arena: FakeArena) -> None:
        super().__init__(arena, 0)
        self.gate = threading.Event()

    def snapshot_deliver(self, loop: int, snapshot: Snapshot) -> None:
        if snapshot.bytes >= LARGE_SNAPSHOT_BYTES:
            assert self.gate.wait(WAIT_SECONDS)
        super().snapshot_deliver(loop, snapshot)


def test_a_large_snapshot_is_published_with_the_position_it_was_taken_at() -> None:
    arena = FakeArena()
    worker = Gated(arena)
    worker.loop_begin(0)
    writer = SnapshotWriter(worker)
    large = np.arange(LARGE_SNAPSHOT_BYTES, dtype=np.uint8)
    small = np.arange(10.0)
    worker.collective("op 0")
    writer.write(Cut(0, 1), {"large": large, "small": small}, {"v": 1})
    small += 1
    worker.collective("op 1")
    assert writer.busy
    assert arena.loops[0].data is None
    worker.gate.set()
    assert writer.settle() > 0
    assert not writer.busy
    assert writer.settle() == 0
    assert arena.loops[0].position == 1
    assert arena.loops[0].data is not None
    arrays, values = unpack(memoryview(arena.loops[0].data), [])
    np.testing.assert_array_equal(arrays["large"], large)
    np.testing.assert_array_equal(arrays["small"], np.arange(10.0))
    assert values == {"v": 1}
    writer.close()


def test_a_small_snapshot_is_published_at_once() -> None:
    arena = FakeArena()
    worker = Gated(arena)
    worker.loop_begin(0)
    writer = SnapshotWriter(worker)
    before = threading.active_count()
    writer.write(Cut(0, 1), {"a": np.ones(1000)}, {})
    assert arena.loops[0].data is not None
    assert not writer.busy
    assert threading.active_count() == before
    writer.close()


def test_arrays_among_the_values_may_change_meanwhile() -> None:
    arena = FakeArena()
    worker = Gated(arena)
    worker.loop_begin(0)
    writer = SnapshotWriter(worker)
    kept = np.zeros(LARGE_SNAPSHOT_BYTES)
    writer.write(Cut(0, 1), {}, {"kept": kept})
    kept += 1
    worker.gate.set()
    writer.settle()
    assert arena.loops[0].data is not None
    assert not unpack(memoryview(arena.loops[0].data), [])[1]["kept"].any()
    writer.close()


@pytest.fixture
def gated(monkeypatch: pytest.MonkeyPatch) -> Gated:
    """A worker all of whose snapshots are large."""
    monkeypatch.setattr(snapshot_writer, "LARGE_SNAPSHOT_BYTES", 0)
    monkeypatch.setitem(globals(), "LARGE_SNAPSHOT_BYTES", 0)
    return Gated(FakeArena())


def test_no_snapshot_is_due_while_one_is_on_its_way(gated: Gated) -> None:
    with incarnation(FakeArena(), 0):
        loop = TrainingLoop(gated, None, 0.01)
        loop.begin()
        loop.set_step(FIRST_STEPS)
        assert loop.wants_snapshot(FIRST_STEPS)
        loop.write(FIRST_STEPS, lambda: ({}, {}))
        loop.set_step(10**9)
        assert not loop.wants_snapshot(10**9)
        gated.gate.set()
        loop.end()
    assert gated.snapshots == 1
    [costs] = gated.costs
    assert costs.stall_ns > 0
    assert costs.copy_ns > 0
    assert costs.training_ns >= costs.stall_ns > 0
    assert costs.steps >= 1


def test_a_fixed_interval_waits_for_the_one_on_its_way(gated: Gated) -> None:
    with incarnation(FakeArena(), 0):
        loop = TrainingLoop(gated, 1, 0.01)
        loop.begin()
        loop.write(1, lambda: ({}, {}))
        assert loop.wants_snapshot(2)
        gated.gate.set()
        loop.write(2, lambda: ({}, {}))
        loop.end()
    assert gated.snapshots == 2
    assert [costs.steps for costs in gated.costs] == [1, 1]


def test_a_full_log_makes_a_snapshot_due() -> None:
    worker = FakeWorker(FakeArena(), 0)
    with incarnation(FakeArena(), 0):
        loop = TrainingLoop(worker, None, 0.01)
        loop.begin()
        worker.collective("op 0")
        loop.set_step(1)
        assert not loop.wants_snapshot(1)
        worker.log_facts = Log(60, 100, 1, 1000)
        assert not loop.wants_snapshot(1)  # but at the first boundary beyond the mark it asks for
        worker.collective("op 1")
        loop.set_step(2)
        assert loop.wants_snapshot(2)
        loop.write(2, lambda: ({}, {}))
        assert not loop.wants_snapshot(2)
        loop.end()
