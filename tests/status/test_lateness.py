"""How late ranks came to their latest ops."""

import pytest

from hvd_ft.native.types import OpMoments
from hvd_ft.status.lateness import of_op, of_ranks

MS = 1_000_000


def moments(op: int, handed_ms: float, begun_ms: float, done_ms: float = 0) -> OpMoments:
    return OpMoments(op, round(handed_ms * MS), round(begun_ms * MS), 0, round(done_ms * MS))


def test_lateness_is_measured_against_the_first_and_the_median() -> None:
    ranks = {
        0: {5: moments(5, 100, 141, 150)},
        1: {5: moments(5, 110, 141)},
        2: {5: moments(5, 140, 141, 149)},
        3: {4: moments(4, 90, 91)},  # it has not begun the op
    }
    first, middle, last = of_op(5, ranks)
    assert (first.rank, middle.rank, last.rank) == (0, 1, 2)
    assert last.after_first_seconds == pytest.approx(0.040)
    assert last.after_median_seconds == pytest.approx(0.030)
    assert first.after_median_seconds == pytest.approx(-0.010)
    assert (first.waited_seconds, last.waited_seconds) == pytest.approx((0.041, 0.001))
    assert middle.under_way_seconds is None
    assert last.under_way_seconds == pytest.approx(0.008)
    assert of_op(6, ranks) == []


def test_means_are_those_of_the_ops_that_all_ranks_have_begun() -> None:
    ranks = {
        0: {op: moments(op, 100 * op, 100 * op + 31) for op in (1, 2)},
        1: {op: moments(op, 100 * op + 10 * op, 100 * op + 31) for op in (1, 2, 3)},
    }
    late = of_ranks(ranks)
    assert late[1].ops == 2
    assert late[1].after_first_seconds == pytest.approx(0.015)
    assert late[1].after_median_seconds == pytest.approx(0.0075)
    assert late[1].waited_seconds == pytest.approx(0.016)
    assert late[0].waited_seconds == pytest.approx(0.031)


def test_an_op_in_which_a_rank_has_handed_nothing_over_is_left_out() -> None:
    assert of_ranks({0: {1: moments(1, 5, 6)}, 1: {1: OpMoments(1, 0, 6)}}) == {}


@pytest.mark.parametrize("ranks", [{}, {3: {1: moments(1, 5, 6)}}, {0: {}, 1: {}}])
def test_nothing_is_said_about_a_rank_without_others(
    ranks: dict[int, dict[int, OpMoments]],
) -> None:
    assert of_ranks(ranks) == {}
