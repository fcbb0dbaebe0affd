"""Which snapshots a checkpoint holds, and how nodes agree on it."""

from hypothesis import given
from hypothesis import strategies as st

from hvd_ft.checkpointer.cuts import Cut, Held, common, first_behind, with_earlier_loops
from hvd_ft.checkpointer.round import Round, cut_in, share_detail
from hvd_ft.native.types import Snapshot


def held(loop: int, cut: int, position: int, agreement: int = 0, slot: int = 0) -> Held:
    return Held(loop, slot, Snapshot(cut, position, 100, 0, agreement))


def all_of(position: int) -> range:
    """The ranks that are present, wherever in the log."""
    return range(2)


def test_a_cut_counts_that_all_ranks_have_with_one_agreement() -> None:
    ranks = {
        0: [held(0, 5, 10, 7), held(0, 7, 20, 8, 1), held(1, 3, 30)],
        1: [held(0, 7, 20, 9), held(0, 5, 10, 7, 1), held(1, 3, 30), held(1, 5, 40, 0, 1)],
    }
    cuts = common(ranks, all_of)
    assert list(cuts) == [Cut(0, 5), Cut(1, 3)]
    assert cuts[Cut(0, 5)][1].slot == 1
    # One that stores all by itself lacks the other one's stripe.
    assert common({0: [held(0, 5, 10, 7)], 1: [held(0, 5, 10)]}, all_of) == {}


def test_ranks_that_have_left_are_not_awaited() -> None:
    """Rank 1 leaves at position 20: what it shared before is needed, and what comes is not."""
    ranks = {0: [held(0, 7, 25), held(0, 5, 10, 7, 1)], 1: [held(0, 3, 8)]}
    assert list(common(ranks, lambda position: [0] if position >= 20 else [0, 1])) == [Cut(0, 7)]


def test_the_first_cut_behind_the_position_is_taken() -> None:
    cuts = common({0: [held(0, 5, 10), held(0, 7, 20, slot=1), held(1, 3, 30)]}, all_of)
    assert first_behind(cuts, 9) == Cut(0, 5)
    assert first_behind(cuts, 10) == Cut(0, 7)
    assert first_behind(cuts, 20) == Cut(1, 3)
    assert first_behind(cuts, 30) is None
    # With process sets ranks have positions of their own.
    cuts = common({0: [held(0, 5, 12)], 1: [held(0, 5, 10)]}, all_of)
    assert first_behind(cuts, 11) is None


def test_a_checkpoint_has_the_latest_of_each_earlier_loop() -> None:
    slots = [held(0, 5, 10), held(0, 8, 20, slot=1), held(1, 2, 25), held(2, 3, 30)]
    cuts = common({0: [*slots, held(2, 5, 40, slot=1)]}, all_of)
    assert list(with_earlier_loops(cuts, Cut(2, 3))) == [Cut(0, 8), Cut(1, 2), Cut(2, 3)]
    assert list(with_earlier_loops(cuts, Cut(0, 5))) == [Cut(0, 5)]


@given(
    position=st.integers(0, 1 << 40),
    loop=st.integers(0, 63),
    number=st.integers(1, (1 << 32) - 1),
)
def test_an_event_tells_the_cut_and_the_round(position: int, loop: int, number: int) -> None:
    detail = share_detail(position, Cut(loop, number))
    assert 0 <= detail < 1 << 64
    assert cut_in(detail, position) == Cut(loop, number)
    assert cut_in(detail, position + 1) is None


def test_a_round_is_complete_when_all_nodes_have_the_same_cut() -> None:
    round_ = Round(10, nodes=2)
    assert round_.waits_for_snapshot
    round_.share(0, share_detail(10, Cut(0, 5)))
    assert not round_.complete
    round_.share(4, share_detail(9, Cut(0, 5)))
    assert not round_.complete, "that was another round's"
    round_.share(4, share_detail(10, Cut(0, 5)))
    assert round_.complete
    assert not round_.torn


def test_a_round_whose_nodes_have_different_cuts_is_torn() -> None:
    round_ = Round(10, nodes=2)
    round_.share(0, share_detail(10, Cut(0, 5)))
    round_.share(4, share_detail(10, Cut(0, 7)))
    assert round_.torn
    assert not round_.complete
