"""Who waits for whom, from how far ranks have come."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from hvd_ft.native.types import Left, State
from hvd_ft.status.snapshot import Wait
from hvd_ft.status.waits import Progress, blamed, waits

COMPUTES = Progress(State.RUNNING, 0, 5, 5)
ANNOUNCED = Progress(State.RUNNING, 1, 5, 5)  # the log has 5 ops: this one is not agreed
CONTRIBUTED = Progress(State.RUNNING, 1, 5, 6)
COPIES = Progress(State.RUNNING, 1, 5, 5)  # of a log with 6 ops: it is to contribute
AWAY = Progress(State.RESTARTING, 0, 0, 5)


def found(*ranks: Progress, log: int) -> dict[int, Wait]:
    return waits(dict(enumerate(ranks)), log)


def test_an_op_that_not_all_have_announced() -> None:
    late = Wait(kind="announcement", ranks=[1])
    assert found(ANNOUNCED, COMPUTES, ANNOUNCED, log=5) == {0: late, 2: late}


def test_an_op_that_all_have_announced_and_nobody_has_agreed_on() -> None:
    assert found(ANNOUNCED, ANNOUNCED, log=5)[0] == Wait(kind="announcement", ranks=[])


def test_an_op_that_lacks_a_contribution() -> None:
    assert found(CONTRIBUTED, COPIES, log=6) == {0: Wait(kind="contribution", ranks=[1], op=5)}
    assert found(CONTRIBUTED, AWAY, log=6) == {0: Wait(kind="contribution", ranks=[1], op=5)}


def test_an_op_that_is_on_the_ring() -> None:
    assert found(CONTRIBUTED, CONTRIBUTED, log=6)[1] == Wait(kind="sum", op=5)


def test_a_receive_while_a_rank_is_away() -> None:
    receives = Progress(State.WAITING, 0, 5, 5)
    assert found(receives, AWAY, COMPUTES, log=5) == {0: Wait(kind="rank", ranks=[1])}
    assert found(receives, COMPUTES, log=5) == {}, "it may be back by now"


@pytest.mark.parametrize(
    "gone", [Progress(State.DONE, 0, 0, 0), Progress(State.RUNNING, 0, 0, 0, Left.MAY_RETURN)]
)
def test_nobody_waits_for_who_has_left(gone: Progress) -> None:
    assert found(CONTRIBUTED, gone, log=6)[0] == Wait(kind="sum", op=5)
    assert found(ANNOUNCED, gone, log=5)[0] == Wait(kind="announcement", ranks=[])


def test_who_is_awaited_most_comes_first() -> None:
    late = found(ANNOUNCED, COMPUTES, ANNOUNCED, AWAY, log=5)
    assert list(blamed(late).items()) == [(1, 2), (3, 2)]
    assert blamed({0: Wait(kind="rank", ranks=[2, 1]), 3: Wait(kind="rank", ranks=[2])}) == {
        2: 2,
        1: 1,
    }


PROGRESS = some.builds(
    Progress,
    some.sampled_from(State),
    some.integers(-2, 2),
    some.integers(0, 3),
    some.integers(0, 4),
    some.sampled_from(Left),
)


@given(some.lists(PROGRESS, max_size=5), some.integers(0, 4))
def test_no_reading_is_impossible(ranks: list[Progress], log: int) -> None:
    for rank, wait in found(*ranks, log=log).items():
        assert rank not in wait.ranks
        assert all(ranks[other].takes_part for other in wait.ranks)
        assert ranks[rank].state not in (State.DONE, State.RESTARTING, State.REPLAYING)
