"""The rules of warm spares: how many, when, for whom, and which one is taken."""

import pytest

from hvd_ft.native.types import State
from hvd_ft.spares.handover import takeable
from hvd_ft.spares.pool_policy import MAXIMUM_EARLY_DEATHS, SparePool, fits, may_prepare


def with_one(size: int = 1) -> SparePool:
    """A pool whose first spare, number 1, is being prepared."""
    pool = SparePool(size)
    assert pool.wants_one
    pool.started(1)
    return pool


def test_spares_are_prepared_one_after_the_other() -> None:
    pool = with_one(2)
    assert not pool.wants_one
    pool.ready(1)
    assert pool.wants_one
    pool.started(2)
    assert not pool.wants_one
    pool.ready(2)
    assert not pool.wants_one


def test_one_that_is_taken_or_dies_is_replaced() -> None:
    pool = with_one()
    pool.ready(1)
    pool.taken(1)
    assert pool.wants_one
    pool.started(2)
    pool.ready(2)
    pool.ended(1, unfit=False)
    assert not pool.wants_one
    pool.ended(2, unfit=False)
    assert pool.wants_one


def test_one_can_be_taken_before_it_is_ready() -> None:
    pool = with_one()
    pool.taken(1)
    pool.ready(1)
    assert pool.wants_one


def test_one_that_cannot_import_is_the_last() -> None:
    pool = with_one()
    pool.ended(1, unfit=True)
    assert pool.given_up
    assert not pool.wants_one


def test_spares_that_are_killed_early_again_and_again_are_given_up() -> None:
    pool = SparePool(1)
    for spare in range(MAXIMUM_EARLY_DEATHS):
        assert pool.wants_one
        pool.started(spare)
        pool.ended(spare, unfit=False)
    assert pool.given_up


def test_early_deaths_are_forgotten_once_a_spare_is_ready() -> None:
    pool = SparePool(1)
    for spare in range(2 * MAXIMUM_EARLY_DEATHS):
        pool.started(spare)
        if spare % 2:
            pool.ready(spare)
        pool.ended(spare, unfit=False)
    assert not pool.given_up


@pytest.mark.parametrize("state", list(State))
def test_none_is_prepared_while_a_rank_is_on_its_way(state: State) -> None:
    on_its_way = state in (State.STARTING, State.RESTARTING, State.REPLAYING)
    assert may_prepare([State.RUNNING, state]) != on_its_way


def test_a_spare_fits_if_libraries_would_read_the_same() -> None:
    spare = {"PATH": "/bin", "OMP_NUM_THREADS": "1"}
    assert fits(spare, {**spare, "HOROVOD_RANK": "3"})
    assert not fits(spare, {**spare, "OMP_NUM_THREADS": "2"})
    assert not fits(spare, {"PATH": "/bin"})


def test_ready_spares_are_taken_first_and_no_other_file() -> None:
    names = ["node.arena", "preparing-1", "ready-3", "lock", "new-4", "ready-2"]
    assert takeable(names) == ["ready-2", "ready-3", "preparing-1"]
