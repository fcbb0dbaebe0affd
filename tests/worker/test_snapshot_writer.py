"""Large snapshots are copied while training continues, and hold the state at their beginning."""

import threading

import numpy as np
import pytest
from fake_worker import FakeArena, FakeWorker, incarnation

from hvd_ft.errors import NoRoomError
from hvd_ft.native.types import Log, Snapshot
from hvd_ft.worker import snapshot_writer
from hvd_ft.worker.shared_contents import Place, unpack
from hvd_ft.worker.snapshot_interval import FIRST_STEPS
from hvd_ft.worker.snapshot_writer import LARGE_SNAPSHOT_BYTES, Cut, SnapshotWriter
from hvd_ft.worker.training_loop import TrainingLoop

WAIT_SECONDS = 30


def place_of(arena: FakeArena) -> Place:
    snapshot = arena.loops[0].snapshot
    assert snapshot is not None
    return Place(snapshot.cut, snapshot.position)


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
    # Others wait for its part of this cut, though it has passed its boundary.
    assert writer.passed(2) == 0
    assert arena.loops[0].data is None
    worker.gate.set()
    assert writer.settle() > 0
    assert not writer.busy
    assert writer.passed(2) == 2
    assert writer.settle() == 0
    assert arena.loops[0].position == 1
    assert arena.loops[0].data is not None
    arrays, values = unpack(memoryview(arena.loops[0].data), [], place_of(arena))
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
    assert not unpack(memoryview(arena.loops[0].data), [], place_of(arena))[1]["kept"].any()
    writer.close()


class OfTwo(FakeWorker):
    """Rank 0 of two on a node, in a time of its own: the other one comes to no cut.

    Args:
        away_seconds: for which the other one is being restarted.
        comes_seconds: when it comes to the cut after all.
    """

    def __init__(self, away_seconds: float = 0.0, comes_seconds: float = 1e9) -> None:
        super().__init__(FakeArena(), 0)
        self.now = 0.0
        self.given_up: list[int] = []
        self._away_seconds, self._comes_seconds = away_seconds, comes_seconds
        self._published = b""

    def node_ranks(self, position: int | None = None) -> list[int]:
        return [0, 1]

    def any_away(self) -> bool:
        return self.now < self._away_seconds

    def fingerprints_publish(self, loop: int, cut: int, data: bytes) -> None:
        self._published = data

    def fingerprints(self, rank: int, loop: int, cut: int) -> tuple[bool, bytes | None]:
        came = rank == self.rank or self.now >= self._comes_seconds
        return came, self._published if came else None

    def snapshot_wait(self, ticket: int, seconds: float) -> None:
        self.now += seconds

    def snapshot_give_up(self, loop: int, cut: int) -> None:
        self.given_up.append(cut)


class Survivor(FakeWorker):
    """Waits to overwrite a snapshot until a rank that has come back has published a newer one.

    That rank, alone on its host, has passed over the cuts in between, as it did not know their
    marks. So it shares this very cut with this rank, and waits for this one's fingerprints.
    """

    def __init__(self) -> None:
        super().__init__(FakeArena(), 0)
        self.nodes, self.now = 2, 0.0
        self.prints: list[tuple[int, bytes]] = []

    def fingerprints_publish(self, loop: int, cut: int, data: bytes) -> None:
        self.prints.append((cut, data))

    def snapshot_begin(self, loop: int, cut: int, position: int) -> bool | None:
        return True if cut in dict(self.prints) else None

    def snapshot_wait(self, ticket: int, seconds: float) -> None:
        self.now += seconds

    def snapshot_apart(self) -> None:
        raise AssertionError("both wait for each other")


@pytest.mark.parametrize("size", [100, LARGE_SNAPSHOT_BYTES])
def test_a_rank_that_waits_for_one_that_is_back_gives_it_its_fingerprints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], size: int
) -> None:
    worker = Survivor()
    monkeypatch.setattr(snapshot_writer.time, "monotonic", lambda: worker.now)
    monkeypatch.setattr(SnapshotWriter, "_alone", False)
    monkeypatch.setattr(SnapshotWriter, "_apart", False)
    worker.loop_begin(0)
    writer = SnapshotWriter(worker)
    assert writer.write(Cut(0, 1), {"a": np.zeros(size, np.uint8)}, {})
    writer.settle()
    writer.close()
    assert worker.now == 0
    assert len(worker.prints) == 1
    assert worker.snapshots == 1
    assert capsys.readouterr().err == ""


def test_a_rank_that_is_back_does_not_seem_to_have_passed_its_first_cut() -> None:
    """Others that wait for it see it in the next step only after its fingerprints."""
    published_by: list[threading.Thread] = []

    class Back(FakeWorker):
        def fingerprints_publish(self, loop: int, cut: int, data: bytes) -> None:
            published_by.append(threading.current_thread())

    worker = Back(FakeArena(), 1)
    worker.nodes = 2
    worker.loop_begin(0)
    writer = SnapshotWriter(worker)
    for number in (1, 3):
        assert writer.write(Cut(0, number), LARGE, {})
        writer.settle()
    writer.close()
    first, second = published_by
    assert first is threading.current_thread()
    assert second is not first, "later ones do not stop training"


class Owing(FakeWorker):
    """One whose cut is left out, as a rank of another host has passed it."""

    def __init__(self) -> None:
        super().__init__(FakeArena(), 0)
        self.owed = True

    def snapshot_begin(self, loop: int, cut: int, position: int) -> bool:
        return False

    def snapshot_owed(self, loop: int) -> bool:
        return self.owed


def test_a_cut_that_another_host_has_passed_is_left_out_and_another_one_requested() -> None:
    worker = Owing()
    worker.loop_begin(0)
    worker.collective("op 0")
    writer = SnapshotWriter(worker)
    assert not writer.write(Cut(0, 3), LARGE, {})
    writer.settle()
    worker.collective("op 1")
    assert worker.mark_passed(0, 0)
    writer.close()


def test_no_snapshot_is_due_that_would_wait_for_another_host() -> None:
    worker = Owing()
    with incarnation(FakeArena(), 0):
        loop = TrainingLoop(worker, None, 0.01)
        loop.begin()
        worker.collective("op 0")
        loop.set_step(FIRST_STEPS)
        assert not loop.wants_snapshot(FIRST_STEPS)
        worker.collective("op 1")
        loop.set_step(FIRST_STEPS + 1)
        assert not loop.wants_snapshot(FIRST_STEPS + 1), "nor has it asked for a mark"
        worker.owed = False
        loop.wants_snapshot(FIRST_STEPS + 1)
        worker.collective("op 2")
        loop.set_step(FIRST_STEPS + 2)
        assert loop.wants_snapshot(FIRST_STEPS + 2)
        loop.end()


LARGE = {"large": np.zeros(LARGE_SNAPSHOT_BYTES, np.uint8)}


def take(worker: OfTwo, monkeypatch: pytest.MonkeyPatch, cuts: int = 1) -> list[float]:
    """Takes large snapshots, with a timeout of 10 s; returns when each of them was done."""
    monkeypatch.setenv("HOROVOD_FT_SNAPSHOT_SECONDS", "10")
    monkeypatch.setattr(snapshot_writer.time, "monotonic", lambda: worker.now)
    monkeypatch.setattr(SnapshotWriter, "_alone", False)
    worker.loop_begin(0)
    writer, done = SnapshotWriter(worker), []
    for cut in range(1, cuts + 1):
        writer.write(Cut(0, cut), LARGE, {})
        writer.settle()
        done.append(worker.now)
    writer.close()
    return done


def test_ranks_that_never_come_are_awaited_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    worker = OfTwo()
    first, *others = take(worker, monkeypatch, cuts=3)
    assert first == pytest.approx(10, abs=0.5)
    assert others == [first, first]
    assert worker.given_up == [1, 2, 3], "so nobody waits for this one"
    assert worker.snapshots == 3
    worker.loop_begin(1)
    later = SnapshotWriter(worker)
    later.write(Cut(1, 1), LARGE, {})
    later.settle()
    later.close()
    assert worker.now == first
    told = capsys.readouterr().err
    assert told.count("rank 0 takes its snapshots alone from now on") == 1
    assert "within 10 s" in told


def test_the_time_in_which_a_rank_is_restarted_does_not_count(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    worker = OfTwo(away_seconds=100, comes_seconds=105)
    assert take(worker, monkeypatch) == [pytest.approx(105, abs=0.5)]
    assert worker.given_up == []
    assert capsys.readouterr().err == ""


def test_a_job_that_is_stopped_waits_for_nobody(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    worker = OfTwo()
    worker.stop_code = 1
    assert take(worker, monkeypatch) == [0]
    assert capsys.readouterr().err == ""


def test_a_rank_without_room_is_not_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranks that share with it would wait for its part until their time is over."""

    class Full(OfTwo):
        def snapshot_room(self, loop: int, size: int) -> memoryview:
            raise NoRoomError("the arena is full")

    worker = Full(comes_seconds=0.0)
    with pytest.raises(NoRoomError):
        take(worker, monkeypatch)
    assert worker.given_up == [1]


@pytest.mark.parametrize("last", [False, True])
def test_no_rank_has_passed_a_cut_that_it_is_about_to_take(last: bool) -> None:
    """Others would take theirs alone."""
    passed: list[int] = []
    taken: list[int] = []

    class Told(FakeWorker):
        def cuts_passed(self, loop: int, cut: int) -> None:
            passed.append(cut)

        def fingerprints_publish(self, loop: int, cut: int, data: bytes) -> None:
            assert passed[-1] < cut
            taken.append(cut)

    with incarnation(FakeArena(), 0):
        loop = TrainingLoop(Told(FakeArena(), 0), 1, 0.01)
        loop.begin()
        for step in range(3):
            loop.set_step(step)
            loop.write(step, lambda: ({}, {}))
        if last:
            loop.write(2, lambda: ({}, {}), last=True)
        loop.set_step(3)
        assert passed[-1] >= taken[-1], "nor is it awaited at one that is over"
        loop.end()


class Delivered(FakeWorker):
    """One that has delivered its part of the cut before it died; other ranks are still at it.

    Args:
        use: what settle() returns in the end: False if another snapshot is wanted.
    """

    def __init__(self, use: bool) -> None:
        super().__init__(FakeArena(), 1)
        self.looks = 0
        self._use = use

    def snapshot_begin(self, loop: int, cut: int, position: int) -> bool:
        return False

    def snapshot_settle(self, loop: int) -> bool | None:  # type: ignore[override]
        self.looks += 1
        return None if self.looks < 5 else self._use

    def snapshot_wait(self, ticket: int, seconds: float) -> None:
        pass


@pytest.mark.parametrize("use", [True, False])
def test_what_a_dead_incarnation_has_delivered_is_awaited(use: bool) -> None:
    """Otherwise a rank could end before its last snapshot is complete."""
    worker = Delivered(use)
    worker.loop_begin(0)
    worker.collective("op 0")
    writer = SnapshotWriter(worker)
    assert not writer.write(Cut(0, 3), LARGE, {})
    writer.settle()
    assert worker.looks == 5
    worker.collective("op 1")
    assert worker.mark_passed(0, 0) != use, "a mark would move on the others'"
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
