"""Epochs are timed at the first step at or past their end."""

import csv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.worker.epoch_timing import EpochClock, Lap, check_csv, describe, write_csv


def run(clock: EpochClock, steps: range, seconds: float) -> list[Lap]:
    """Every step takes so many seconds; returns what was measured."""
    clock.start(steps.start, steps.start * seconds)
    laps = []
    for step in steps:
        if clock.passes_boundary(step + 1):
            laps.append(clock.lap(step + 1, (step + 1) * seconds))
    return laps


def test_a_lap_ends_past_the_boundary_and_says_how_far() -> None:
    laps = run(EpochClock(samples=10, batch=4), range(8), 0.5)  # epochs end at 2.5, 5, 7.5
    assert [lap.end_epoch for lap in laps] == [1.2, 2.0, 3.2]
    assert [lap.start_epoch for lap in laps] == [0.0, 1.2, 2.0]
    assert laps[1] == Lap(1.2, 2.0, 1.5, 2.5, 0.8, 1.0, 0.8)


def test_only_a_boundary_ends_a_lap() -> None:
    assert run(EpochClock(1000, 1), range(1, 999), 1.0) == []
    [lap] = run(EpochClock(1000, 1), range(1, 1500), 1.0)
    assert (lap.start_epoch, lap.end_epoch) == (0.001, 1.0)


def test_a_step_may_pass_several_boundaries() -> None:
    [lap] = run(EpochClock(10, 35), range(1), 2.0)
    assert (lap.epochs, lap.seconds, lap.epochs_per_second) == (3.5, 2.0, 1.75)


def test_the_tenth_epoch_is_not_just_10() -> None:
    """50000 samples in steps of 1024: a step is 0.02 of an epoch."""
    ends = [lap.end_epoch for lap in run(EpochClock(50000, 1024), range(600), 1.0)]
    assert f"{ends[9]:.2f}" == "10.01"
    assert all(0 <= end - whole < 1024 / 50000 for whole, end in enumerate(ends, 1))


def test_a_lap_in_words() -> None:
    lap = Lap(8.98, 10.02, 0, 0, 1.04, 3.25, 0.32)
    assert describe(lap) == "hvdft: epoch 10.02: 1.04 epochs in 3.250 s, 0.32 epochs/s"


def test_arguments_out_of_range() -> None:
    for samples, batch in ((0, 1), (1, 0)):
        with pytest.raises(HvdFtError, match="out of range"):
            EpochClock(samples, batch)


def test_the_csv_file(tmp_path: Path) -> None:
    path = tmp_path / "laps.csv"
    clock = EpochClock(10, 4)
    run(clock, range(8), 0.5)
    check_csv(path)
    write_csv(path, clock.laps[:1])
    write_csv(path, clock.laps)
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["end_epoch"]) for row in rows] == [1.2, 2.0, 3.2]
    assert list(rows[0]) == list(Lap._fields)
    assert list(tmp_path.iterdir()) == [path]
    for wrong in (tmp_path, tmp_path / "no" / "laps.csv"):
        with pytest.raises(HvdFtError, match="cannot write"):
            check_csv(wrong)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two ranks, for the clock; this is the first one."""
    pytest.importorskip("horovod.tensorflow", reason="Horovod is not built")
    from hvd_ft.tensorflow import epoch_timing

    horovod = SimpleNamespace(rank=lambda: 0, size=lambda: 2)
    monkeypatch.setattr(epoch_timing, "hvd", horovod)
    return horovod


def ends(path: Path) -> list[float]:
    with path.open() as file:
        return [round(float(row["end_epoch"]), 6) for row in csv.DictReader(file)]


def test_a_session_is_timed_by_its_global_step(
    alone: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tf = pytest.importorskip("tensorflow")
    pytest.importorskip("tensorflow_estimator")
    from hvd_ft.tensorflow.estimator import EpochTiming

    path = tmp_path / "laps.csv"
    timing = EpochTiming(samples=10, batch_size=2, csv=path)
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        more = v1.assign_add(step, 1)
        stop = v1.train.StopAtStepHook(last_step=8)
        with v1.train.MonitoredTrainingSession(hooks=[stop, timing]) as session:
            while not session.should_stop():
                session.run(more)
    assert ends(path) == [1.2, 2.0, 3.2]
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[1] for line in lines] == [
        f" epoch {n}" for n in ("1.20", "2.00", "3.20")
    ]


def test_other_ranks_say_nothing(
    alone: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from hvd_ft.tensorflow.epoch_timing import RankClock

    alone.rank = lambda: 1
    clock = RankClock(10, 5, tmp_path / "laps.csv")
    clock.begin_lap(0)
    clock.end_lap(1)
    assert len(clock.laps) == 1
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().out == ""


@pytest.mark.shows
@pytest.mark.job
def test_a_fit_is_timed_and_resumed_without_a_lap_twice(alone: Any, tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    from fake_worker import FakeArena, incarnation

    from hvd_ft.tensorflow.callbacks import EpochTiming, FaultTolerance

    x = np.ones((20, 1), np.float32)

    def fit(die_after: int | None) -> list[Any]:
        tf.keras.utils.set_random_seed(1)
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        timing = EpochTiming(20, 2, tmp_path / "laps.csv")  # 5 steps an epoch
        steps = []

        def count(batch: int, logs: Any) -> None:
            steps.append(batch)
            if len(steps) == die_after:
                raise KeyboardInterrupt

        stop = tf.keras.callbacks.LambdaCallback(on_train_batch_end=count)
        callbacks = [timing, stop, FaultTolerance(3)]
        model.fit(x, x, batch_size=2, epochs=2, callbacks=callbacks, verbose=0)
        return timing.laps

    arena = FakeArena()
    with incarnation(arena, 0), pytest.raises(KeyboardInterrupt):
        fit(11)
    with incarnation(arena, 1):
        laps = fit(None)
    assert [round(lap[1], 6) for lap in laps] == ends(tmp_path / "laps.csv") == [1, 2, 3, 4]
