"""From which snapshots the ranks of a lost node start again."""

from dataclasses import replace

import pytest

from hvd_ft.agent.lost_snapshots import choose
from hvd_ft.errors import HvdFtError
from hvd_ft.native.rejoin import Slot

EMPTY = Slot(begin=5, ended=0, published=0, word=0, position=0, bytes=0, stripe=0)
AGREEMENT = 9


def at(cut: int, *, published: bool, shared: bool = True) -> Slot:
    word = cut << 32 | (AGREEMENT if shared else 0)
    return replace(EMPTY, published=int(published), word=word, position=10 * cut, bytes=100)


def test_all_start_from_the_oldest_cut_that_one_of_them_starts_from() -> None:
    """Rank 4 has published cut 3, and rank 5 not yet: its part may not be complete."""
    ahead, behind = [at(2, published=False), at(3, published=True)], [at(2, published=True), EMPTY]
    chosen = choose(0, {4: ahead, 5: behind})
    assert [(each.rank, each.number, each.slot.cut) for each in chosen] == [(4, 0, 2), (5, 0, 2)]


def test_a_part_that_is_not_there_is_named() -> None:
    ahead, behind = [at(4, published=False), at(3, published=True)], [at(2, published=True), EMPTY]
    with pytest.raises(
        HvdFtError, match="part of rank 4 of its snapshot of training loop 1 is los"
    ):
        choose(1, {4: ahead, 5: behind})


def test_a_part_for_which_its_buddy_had_no_room_is_named() -> None:
    """Its older one is there, but the log does not go back so far."""
    left_out = [replace(EMPTY, published=1), at(2, published=False)]
    with pytest.raises(HvdFtError, match="part of rank 4 of its snapshot of training loop 0"):
        choose(0, {4: left_out})


def test_ranks_that_take_theirs_alone_start_from_their_own() -> None:
    alone = [at(7, published=False, shared=False), at(8, published=True, shared=False)]
    shared = [at(2, published=True), EMPTY]
    chosen = choose(0, {0: alone, 1: shared})
    assert [(each.rank, each.number, each.slot.cut) for each in chosen] == [(0, 1, 8), (1, 0, 2)]


def test_a_rank_without_a_snapshot_has_begun_the_loop_all_the_same() -> None:
    nothing = replace(EMPTY, begin=0)
    chosen = choose(2, {0: [EMPTY, EMPTY], 1: [nothing, nothing]})
    assert [(each.rank, each.slot) for each in chosen] == [(0, EMPTY)]
