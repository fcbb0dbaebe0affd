"""The rule for the number of steps between two snapshots, against made-up times."""

import random
from itertools import pairwise

import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.native.types import Log
from hvd_ft.worker.snapshot_interval import (
    FIRST_STEPS,
    SHORTEST_SECONDS,
    SMALL_LOG_BYTES,
    SnapshotInterval,
    check_snapshot_settings,
    log_budget,
    log_wants_snapshot,
    messages_want_snapshot,
)


def begun(overhead: float) -> SnapshotInterval:
    """One whose first loop begins."""
    interval = SnapshotInterval()
    interval.begin_loop(overhead)
    return interval


def train(
    overhead: float,
    steps: int,
    step: float,
    snapshot: float,
    *,
    noise: float = 0.0,
    fresh: int = 0,
) -> tuple[list[int], float]:
    """Trains by the rule's word; returns the steps with a snapshot, and the share they took."""
    interval = begun(overhead)
    draw = random.Random(1)
    taken, cost, time = [0], 0.0, 0.0

    def noisy(seconds: float) -> float:
        return seconds * (1 + noise * draw.expovariate(1))

    for number in range(1, steps + 1):
        took = noisy(step) + (5.0 if number == 1 else 0.0)  # the first step traces functions
        interval.add_steps(1, took)
        time += took
        if number - taken[-1] >= interval.steps:
            taken.append(number)
            spent = noisy(snapshot) * (4 if len(taken) < 4 else 1)  # the first ones are dear
            interval.add_snapshot(spent, fresh=len(taken) - 1 <= fresh)
            cost += spent
            time += spent
    return taken[1:], cost / time


@pytest.mark.parametrize("fresh", [0, 2])
@pytest.mark.parametrize("noise", [0.0, 1.0])
@pytest.mark.parametrize("overhead", [0.01, 0.03])
@pytest.mark.parametrize(
    ("step", "snapshot"), [(0.01, 0.003), (0.2, 0.05), (0.001, 0.01), (1.0, 0.2)]
)
def test_a_long_training_stays_within_its_budget(
    overhead: float, step: float, snapshot: float, noise: float, fresh: int
) -> None:
    taken, share = train(overhead, 20_000, step, snapshot, noise=noise, fresh=fresh)
    first = [FIRST_STEPS * (number + 1) for number in range(1 + fresh)]
    assert taken[: len(first)] == first
    assert share <= overhead
    # And it does not save for nothing, once the dear first ones are paid for.
    expected = max(snapshot / overhead, SHORTEST_SECONDS) / step
    assert taken[-1] - taken[-2] <= 1 + expected * (1 + 2 * noise)


def test_what_has_gone_over_the_budget_is_saved() -> None:
    interval = begun(1 / 64)
    steps = []
    for trained in (3, 64, 61):
        interval.add_steps(trained, trained * 0.125)
        interval.add_snapshot(0.0625)
        steps.append(interval.steps)
    # At first twice as many as one snapshot needs, then what is missing for the last one to come.
    assert steps == [64, 61, 32]


def test_cheap_snapshots_are_not_taken_all_the_time() -> None:
    taken, _ = train(0.01, 10_000, 0.001, 1e-6)
    assert {after - before for before, after in pairwise(taken[9:])} == {200}


def test_steps_longer_than_the_interval_all_get_a_snapshot() -> None:
    taken, share = train(0.01, 100, 60.0, 0.1)
    assert taken == list(range(FIRST_STEPS, 101))
    assert share < 0.01


def test_one_endless_step_changes_nothing() -> None:
    interval = begun(0.01)
    for _ in range(200):
        interval.add_steps(1, 0.1)
    interval.add_snapshot(0.05)
    before = interval.steps
    interval.add_steps(1, 600.0)  # the others waited for a dead rank
    assert interval.steps == before == 50


def test_one_dear_snapshot_is_paid_back_and_forgotten() -> None:
    interval = begun(0.01)
    interval.add_steps(10_000, 1000.0)
    for seconds in (0.05, 0.05, 0.05, 0.85):
        interval.add_snapshot(seconds)
    assert interval.steps == 250
    for _ in range(4):
        interval.add_snapshot(0.05)
    assert interval.steps == 50


def test_a_later_loop_knows_what_snapshots_cost_but_not_how_long_its_steps_are() -> None:
    interval = begun(0.01)
    for _ in range(10):
        interval.add_steps(1, 0.001)
    interval.add_steps(1, 100.0)  # so nothing is owed
    interval.add_snapshot(0.05)
    interval.begin_loop(0.01)
    interval.add_steps(1, 20.0)  # traces a function
    assert interval.steps == 5000
    for _ in range(2):
        interval.add_steps(1, 0.5)
    assert interval.steps == 10


def test_what_fresh_memory_has_cost_is_owed_but_not_expected_again() -> None:
    interval = begun(0.01)
    steps = []
    for trained, seconds, fresh in ((3, 0.5, True), (3, 0.4, True), (3, 0.125, False)):
        interval.add_steps(trained, trained * 0.5)
        interval.add_snapshot(seconds, fresh)
        steps.append(interval.steps)
    assert steps == [FIRST_STEPS, FIRST_STEPS, 2 * 25]


@pytest.mark.parametrize(("fresh", "first"), [(0, [3]), (2, [3, 6, 9])])
def test_short_loops_leave_snapshots_to_their_ends(fresh: int, first: list[int]) -> None:
    interval = SnapshotInterval()
    early = []
    for _ in range(5):
        interval.begin_loop(0.01)
        latest = taken = 0
        for step in range(1, 31):
            interval.add_steps(1, 0.6)
            if step - latest >= interval.steps:
                latest = step
                early.append(step)
                taken += 1
                interval.add_snapshot(0.4, taken <= fresh)
        interval.add_snapshot(0.4, taken < fresh)  # the last one of a loop
    assert early == first


@pytest.mark.parametrize(
    ("log", "own_ops", "wanted"),
    [
        (Log(50, 100, 60, 1000), 60, False),  # there is room
        (Log(51, 100, 60, 1000), 60, True),  # no rank has a newer snapshot than this one
        (Log(51, 100, 60, 1000), 30, True),
        (Log(51, 100, 60, 1000), 29, False),  # another rank's is what holds the log
        (Log(51, 100, 1, 1000), 0, False),
        (Log(1, 100, 501, 1000), 501, True),  # the index fills too
        (Log(0, 0, 0, 1000), 5, False),
    ],
)
def test_the_log_asks_those_whose_snapshot_is_old(log: Log, own_ops: int, wanted: bool) -> None:
    assert log_wants_snapshot(log, own_ops, 0, 6) is wanted


MIB = 1 << 20


@pytest.mark.parametrize(
    ("log_mib", "ops", "own_ops", "step_mib", "wanted"),
    [
        (400, 8, 8, 100, False),
        (500, 10, 10, 100, True),  # the snapshot comes a step later, when the log has six
        (500, 10, 5, 100, True),
        (500, 10, 4, 100, False),  # another rank's is what holds the log
        (500, 10, 0, 100, False),
        (245, 50, 50, 10, False),
        (246, 50, 50, 10, True),  # 256 MiB are a small log
        (255, 50, 50, 0, False),  # nothing is known of a step yet
    ],
)
def test_the_log_has_a_budget_of_memory(
    log_mib: int, ops: int, own_ops: int, step_mib: int, wanted: bool
) -> None:
    log = Log(log_mib * MIB, 1 << 40, ops, 1 << 20)
    assert log_wants_snapshot(log, own_ops, step_mib * MIB, 6) is wanted


def test_the_budget_is_some_steps_or_a_small_log() -> None:
    assert log_budget(100 * MIB, 6) == 600 * MIB
    assert log_budget(MIB, 6) == log_budget(0, 6) == SMALL_LOG_BYTES


@pytest.mark.parametrize("overhead", [0, 1, -0.1, "0.01", float("nan")])
def test_the_budget_is_checked(overhead: float) -> None:
    check_snapshot_settings(None, 0.01)
    with pytest.raises(HvdFtError, match="snapshot_overhead="):
        check_snapshot_settings(None, overhead)


@pytest.mark.parametrize(
    ("own", "share", "wanted"), [(0, 0, False), (50, 100, False), (51, 100, True), (1, 0, True)]
)
def test_messages_that_fill_the_arena_want_a_snapshot(own: int, share: int, wanted: bool) -> None:
    assert messages_want_snapshot(own, share) is wanted
