"""From which checkpoint a job continues."""

import pytest

from hvd_ft.checkpoint.choice import Offer, choose, what_changes
from hvd_ft.errors import HvdFtError


def offer(
    name: str, *ranks: int, size: int = 4, refused: str = "", incomplete: bool = False
) -> Offer:
    return Offer(name, (int(name[1:]), "", 0, 0), size, ranks, refused, incomplete)


HOSTS = [[0, 1], [2, 3]]
ALL = (0, 1, 2, 3)


def test_the_newest_that_all_hosts_see_whole() -> None:
    shared = [offer("c1", *ALL), offer("c2", *ALL), offer("c3", 0, 1, 2)]
    assert choose([shared, shared], HOSTS, "/d") == "c2"
    assert choose([shared, shared], HOSTS, "/d/c3", named=True) == "c3"


def test_hosts_with_directories_of_their_own() -> None:
    here = [offer("c1", 0, 1), offer("c2", 0, 1), offer("c3", 0, 1)]
    there = [offer("c1", 2, 3), offer("c2", 2, 3)]
    assert choose([here, there], HOSTS, "/d") == "c2"
    with pytest.raises(HvdFtError, match="part of rank 0 is not on the host that the rank is on"):
        choose([there, here[:2]], HOSTS, "/d")


def test_one_that_lies_on_another_host_is_named_before_one_that_is_nowhere() -> None:
    here = [offer("c1", 2, 3), offer("c2", 2, 3)]
    there = [offer("c1", 0, 1)]
    with pytest.raises(HvdFtError, match=r"that is whole, c1: the part of rank 0 is not on the"):
        choose([here, there], HOSTS, "/d")


def test_another_number_of_ranks_or_of_hosts() -> None:
    shared = [offer("c1", *ALL)]
    assert choose([shared], [[0, 1]], "/d") == "c1"
    assert choose([shared, shared], [[0, 1, 2], [3, 4, 5]], "/d") == "c1"
    # A rank that is new needs any other one's part.
    with pytest.raises(HvdFtError, match="the part of rank 4 is not on the host"):
        choose([shared, []], [[0, 1, 2, 3], [4]], "/d")


def test_what_is_not_finished_is_passed_over_and_named_if_there_is_nothing_else() -> None:
    left = offer("c9", refused="it is incomplete", incomplete=True, size=0)
    assert choose([[left, offer("c1", *ALL)]], [list(ALL)], "/d") == "c1"
    with pytest.raises(
        HvdFtError, match=r"no complete checkpoint in /d \(the newest one, c9: it is incomplete\)"
    ):
        choose([[left]], [list(ALL)], "/d")
    with pytest.raises(HvdFtError, match="there is no complete checkpoint in /d: give"):
        choose([[]], [list(ALL)], "/d")
    with pytest.raises(HvdFtError, match="the checkpoint /d/c9 cannot be used: it is incomplete"):
        choose([[left]], [list(ALL)], "/d/c9", named=True)


def test_a_damaged_one_is_refused_only_if_it_is_the_newest() -> None:
    damaged, good = offer("c5", refused="it is damaged"), offer("c4", *ALL)
    with pytest.raises(
        HvdFtError, match=r"/d/c5 cannot be used: it is damaged; hvdft run --resume /d/c4 continues"
    ):
        choose([[damaged, good]], [list(ALL)], "/d")
    assert choose([[damaged, good, offer("c6", *ALL)]], [list(ALL)], "/d") == "c6"


def test_what_has_no_owner_any_more_is_named() -> None:
    assert what_changes(4, 4, []) == ""
    assert what_changes(4, 2, []).startswith("what ranks 2, 3 had of their own")
    assert what_changes(4, 3, []).startswith("what rank 3 had of its own")
    assert what_changes(2, 4, []).startswith("ranks 2, 3 begin with the state of another rank")
    assert what_changes(4, 4, [1]).startswith("rank 1 begins with")
    both = what_changes(4, 2, [1])
    assert "ranks 2, 3 had" in both
    assert "rank 1 begins" in both
