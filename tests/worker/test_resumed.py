"""A training loop that continues from another job's checkpoint."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fake_worker import FakeArena, incarnation

from hvd_ft.checkpointer.capture import Captured
from hvd_ft.checkpointer.completion import complete
from hvd_ft.checkpointer.cuts import Cut
from hvd_ft.checkpointer.origin import Origin
from hvd_ft.checkpointer.share import Began, write_share
from hvd_ft.errors import HvdFtError
from hvd_ft.native.checkpointer import Place
from hvd_ft.worker import resumed
from hvd_ft.worker.shared_contents import Contents, freeze
from hvd_ft.worker.training_loop import TrainingLoop

RANKS = 2


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Of two ranks: loop 0 at its end, loop 1 at step 5."""
    origin = Origin(tmp_path, "job1", "job1", 5, Place(RANKS, 1, 0, 0, RANKS), [0])
    cuts = {Cut(0, 18): 8, Cut(1, 11): 5}

    def snapshot(rank: int, step: int) -> Captured:
        kept, values = freeze(
            {"w": np.full(3, step), "own": np.array(rank)}, {"step": step, "rng": {"python": 1}}
        )
        return Captured(step, Contents(kept, values.data, frozenset()))

    captured = {cut: {r: snapshot(r, step) for r in range(RANKS)} for cut, step in cuts.items()}
    write_share(
        origin, Cut(1, 11), captured, ([], []), range(2), began=Began.now(), await_seconds=0.0
    )
    complete(origin, Cut(1, 11), [0])
    path = origin.path(Cut(1, 11))
    told = {"path": str(path), "run": "job1", "loops": [0, 1]}
    monkeypatch.setenv(resumed.VARIABLE, json.dumps(told))
    resumed.resumed.cache_clear()
    yield path
    resumed.resumed.cache_clear()


def begin(worker: object) -> tuple[TrainingLoop, dict | None]:
    loop = TrainingLoop(worker, None, 0.01)
    return loop, loop.begin()


def test_it_begins_where_the_earlier_job_was(checkpoint: Path) -> None:
    arena = FakeArena()
    with incarnation(arena, 0) as worker:
        loop, values = begin(worker)
        assert values is not None
        assert values["step"] == 8
        loop.jump()
        assert worker.jumps == [], "the new job's log has nothing to jump over"
        loop.end()
        worker.collective("between")
        loop, values = begin(worker)
        assert values is not None
        arrays, values = loop.snapshot()
        assert arrays["w"].tolist() == [5] * 3
        assert int(arrays["own"]) == 0
        loop.jump()
        assert loop.wants_snapshot(5), "it is in no arena yet"
        loop.write(5, lambda: ({}, {}))
        assert not loop.wants_snapshot(5)
        loop.end()
        loop, values = begin(worker)
        assert values is None, "the earlier job had no third loop"


def test_loops_that_were_passed_are_in_the_arena_for_a_job_that_goes_on_from_this_one(
    checkpoint: Path,
) -> None:
    """This job's checkpoints have all loops, also those that an earlier job had ended."""
    arena = FakeArena()
    for number in range(3):  # restarted twice in the second loop
        with incarnation(arena, number) as worker:
            for ended, step in enumerate((8, 5)):
                loop, values = begin(worker)
                assert values is not None
                assert values["step"] == (step if number == 0 or ended == 0 else 5 + number)
                loop.snapshot()
                loop.jump()
                if ended == 0 or number == 0:
                    assert loop.wants_snapshot(step) is (number == 0)
                if loop.wants_snapshot(step):
                    loop.write(step, lambda step=step: ({"w": np.full(3, step)}, {"step": step}))
                if ended == 0:
                    loop.end()
                    worker.collective("between")
                else:
                    worker.collective(f"step {number}")
                    now = 6 + number
                    loop.write(now, lambda now=now: ({"w": np.full(3, now)}, {"step": now}))
    assert sorted(arena.loops) == [0, 1]
    assert all(place.snapshot is not None for place in arena.loops.values())


def test_no_snapshot_is_taken_in_a_collective(checkpoint: Path) -> None:
    with incarnation(FakeArena(), 0) as worker:
        loop, _ = begin(worker)
        loop.snapshot()
        loop.jump()
        worker.busy = 1
        assert not loop.wants_snapshot(8)
        worker.busy = 0
        assert loop.wants_snapshot(8)


def test_a_restarted_rank_finds_the_checkpoint_or_what_is_newer(checkpoint: Path) -> None:
    arena = FakeArena()
    with incarnation(arena, 0) as worker:
        loop, _ = begin(worker)
        loop.snapshot()
        loop.jump()
        worker.collective("step")
    with incarnation(arena, 1) as worker:
        loop, values = begin(worker)
        assert values is not None
        assert values["step"] == 8
        loop.snapshot()
        loop.jump()
        assert worker.jumps == []
        worker.collective("step")
        loop.write(9, lambda: ({"w": np.zeros(1)}, {}))
        loop.end()
    with incarnation(arena, 2) as worker:
        loop, values = begin(worker)
        assert values is not None
        assert values["step"] == 9
        loop.snapshot()
        loop.jump()
        assert worker.jumps == [0]


def test_a_rank_without_a_part_has_another_ones_and_no_generators(checkpoint: Path) -> None:
    found = resumed.resumed(4, 5)
    assert found is not None
    assert (found.own, found.resized) == (False, (2, 5))
    arrays, values = found.read(1)
    assert int(arrays["own"]) == 0
    assert values == {"step": 5, "rng": {}}
    mine = resumed.resumed(1, 2)
    assert mine is not None
    assert (mine.own, mine.resized) == (True, None)
    assert int(mine.read(1)[0]["own"]) == 1
    assert mine.latest_values() == {"step": 5, "rng": {"python": 1}}


def test_one_that_has_gone_is_named(checkpoint: Path) -> None:
    (checkpoint / "manifest.json").write_text("{}")
    with pytest.raises(HvdFtError, match="from which this job went on, cannot be read any more"):
        resumed.resumed(0, 2)


def test_without_one_a_loop_begins_anew() -> None:
    with incarnation(FakeArena(), 0) as worker:
        assert begin(worker)[1] is None
