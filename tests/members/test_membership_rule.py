"""Who is replaced, by whom and when; the model (test_membership_model.py) tries all orders."""

import pytest

from hvd_ft.members.hosts import Host
from hvd_ft.members.membership import Membership
from hvd_ft.members.membership_rule import (
    Limits,
    MembershipRule,
    NoSpare,
    Probe,
    Replaced,
)

HOSTS = [Host("n0", 4), Host("n1", 2), Host("n2", 2)]
SPARES = [Host("n3", 2), Host("n4", 4)]
ALL = {"n3": True, "n4": True}


def begin(
    resumed_at: float | None = None, spares: list[Host] = SPARES, least: int | None = None
) -> MembershipRule:
    members, named = Membership.first(HOSTS, 8), [*HOSTS, *spares]
    return MembershipRule.begin(Limits(3, 1), members, named, resumed_at=resumed_at, least=least)


def heard(rule: MembershipRule, now: float, *ranks: int) -> MembershipRule:
    for rank in ranks:
        rule, granted = rule.answered(rank, 0, now)
        assert granted
    return rule


def test_a_host_is_replaced_when_none_of_its_leases_can_be_valid() -> None:
    rule = heard(begin(), 10, 4)
    rule = heard(rule, 11, 5)
    for now in (14, 14.5, 15):
        assert rule.look([1], ALL, now) == (rule, ())
    rule, actions = rule.look([1], ALL, 15.1)
    assert actions == (Replaced(1, "n1", 1),)
    assert rule.members.hosts == (Host("n0", 4), Host("n3", 2), Host("n2", 2))
    assert rule.spares == ("n4",)
    assert rule.answered(4, 0, 16) == (rule, False)  # the old host's
    assert rule.answered(4, 1, 16)[1]


def test_an_older_answer_shortens_no_lease() -> None:
    rule = heard(heard(begin(), 10, 4, 5), 8, 4, 5)
    assert rule.look([1], ALL, 13) == (rule, ())


def test_the_first_spare_that_fits_and_can_be_reached_is_taken() -> None:
    rule = begin()
    assert rule.look([0], {}, 0)[1] == (Probe("n4"),)  # n3 has too few slots
    assert rule.look([1], {}, 0)[1] == (Probe("n3"),)
    assert rule.look([1], {"n4": True}, 0)[1] == (Probe("n3"),)
    assert rule.look([1], {"n3": False}, 0)[1] == (Probe("n4"),)
    assert rule.look([1], {"n3": False, "n4": False}, 0)[1] == (NoSpare(1),)
    after, actions = rule.look([1], {"n3": False, "n4": True}, 0)
    assert actions == (Replaced(1, "n1", 1),)
    assert after.members.places[1].host == "n4"
    assert after.spares == ("n3",)


def test_two_hosts_at_once_and_a_spare_that_is_lost_too() -> None:
    rule, actions = begin().look([0, 1, 2], ALL, 0)
    assert actions == (Replaced(0, "n0", 1), Replaced(1, "n1", 2), NoSpare(2))
    assert str(rule.members) == "2;n4:4@1,n3:2@2,n2:2@0"
    one = begin(spares=[Host("n3", 2), Host("n4", 2)])
    one, _ = one.look([1], ALL, 0)
    one, actions = one.look([1], ALL, 0)  # it never answered
    assert actions == (Replaced(1, "n3", 2),)
    assert str(one.members) == "2;n0:4@0,n4:2@2,n2:2@0"


def test_a_host_that_comes_back_is_a_spare_once() -> None:
    rule, _ = begin(spares=[Host("n3", 2)]).look([1], ALL, 0)
    assert rule.spares == ()
    assert rule.look([2], ALL, 0)[1] == (NoSpare(2),)
    rule, back = rule.came_back(4, 0)
    assert (back, rule.spares) == ("n1", ("n1",))
    assert rule.came_back(5, 0) == (rule, "")  # its other shim
    rule, actions = rule.look([2], {"n1": True}, 0)
    assert actions == (Replaced(2, "n2", 2),)
    assert str(rule.members) == "2;n0:4@0,n3:2@1,n1:2@2"
    # It comes back to its own place in a later epoch.
    rule, _ = rule.came_back(6, 0)
    rule, _ = rule.look([1], {"n2": True}, 0)
    rule, back = rule.came_back(4, 1)
    assert back == "n3"
    assert not rule.admits(4, 0) and not rule.admits(4, 1) and rule.admits(4, 3)


@pytest.mark.parametrize(("now", "replaced"), [(14, False), (14.1, True)])
def test_a_launcher_that_took_over_waits_for_what_the_other_one_has_granted(
    now: float, replaced: bool
) -> None:
    _, actions = begin(resumed_at=10).look([1], ALL, now)
    assert actions == ((Replaced(1, "n1", 1),) if replaced else ())


def test_a_job_that_is_resumed_has_the_hosts_that_it_had() -> None:
    members = Membership.parse("1;n0:4@0,n3:2@1,n2:2@0")
    rule = MembershipRule.begin(Limits(3, 1), members, [*HOSTS, *SPARES], resumed_at=0)
    assert rule.spares == ("n1", "n4")
    assert rule.slots("n9") == 0


def test_without_a_spare_the_ranks_of_a_lost_host_leave_from_another() -> None:
    rule = heard(begin(spares=[], least=4), 10, 4)
    assert rule.look([1], {}, 14) == (rule, ())  # a lease may be valid
    rule, actions = rule.look([1], {}, 14.1)
    assert actions == (Replaced(1, "n1", 1, vacated=True),)
    assert str(rule.members) == "1;n0:4@0,n2:2@1-,n2:2@0"  # that with the fewest ranks
    assert (rule.members.staying, rule.members.leaving) == (6, [4, 5])
    assert not rule.answered(4, 0, 16)[1]
    # The guest's host is lost, too: both places move, and one begins to leave.
    rule, actions = rule.look([1, 2], {}, 20)
    assert actions == (Replaced(1, "n2", 2, vacated=True), Replaced(2, "n2", 3, vacated=True))
    assert str(rule.members) == "3;n0:4@0,n0:2@2-,n0:2@3-"
    assert [rule.members.is_guest(number) for number in range(3)] == [False, True, True]


def test_they_go_where_warm_spares_wait() -> None:
    members = Membership.first(HOSTS, 8)
    limits = Limits(3, 1)
    rule = MembershipRule.begin(limits, members, HOSTS, resumed_at=None, least=4, warm=True)
    assert str(rule.look([1], {}, 0)[0].members) == "1;n0:4@0,n0:2@1-,n2:2@0"


def test_a_spare_goes_before_leaving() -> None:
    rule = begin(spares=[Host("n3", 2)], least=2)
    assert rule.look([1], {}, 0)[1] == (Probe("n3"),)
    assert rule.look([1], {"n3": True}, 0)[1] == (Replaced(1, "n1", 1),)
    assert rule.look([1], {"n3": False}, 0)[1] == (Replaced(1, "n1", 1, vacated=True),)


def test_too_few_ranks_or_rank_0_are_not_left_behind() -> None:
    rule = begin(spares=[], least=6)
    assert rule.look([0], {}, 0)[1] == (NoSpare(0),)
    assert rule.look([0, 1], {}, 0)[1] == (NoSpare(0), NoSpare(1))
    assert rule.look([1, 2], {}, 0)[1] == (Replaced(1, "n1", 1, vacated=True), NoSpare(2))


def left(rule: MembershipRule, *numbers: int) -> MembershipRule:
    """Has the ranks of places leave, whose hosts are lost."""
    for number in numbers:
        rule = rule.look([number], {}, 0)[0]
    return rule


def test_a_host_that_is_found_takes_a_place_whose_ranks_have_left() -> None:
    rule = left(begin(spares=[], least=2), 1)
    taken = rule.fitting([Host("n9", 2)])
    assert taken == {1: "n9"}
    assert rule.refill(taken, left=[]) is rule  # they have not yet
    after = rule.refill(taken, left=[1])
    assert str(after.members) == "2;n0:4@0,n9:2@2,n2:2@0"
    assert not after.answered(4, 1, 16)[1] and after.answered(4, 2, 16)[1]
    assert after.is_fenced(1, 0), "it may be lost before it was heard"
    assert begin(spares=[]).refill({1: "n9"}, left=[1]).members.epoch == 0  # it is not in place


def test_the_host_itself_comes_back() -> None:
    rule = left(begin(spares=[], least=2), 1)
    rule, _ = rule.came_back(4, 0)  # it was only cut off
    assert rule.spares == ("n1",)
    after = rule.refill({1: "n1"}, left=[1])
    assert after.spares == () and after.former == ()
    assert after.look([1], {}, 0)[1] == (Replaced(1, "n1", 3, vacated=True),)


def test_only_hosts_with_as_many_slots_fit() -> None:
    rule = left(begin(spares=[], least=2), 2, 1)
    assert rule.fitting([Host("n8", 2), Host("n9", 2)]) == {1: "n8", 2: "n9"}
    assert rule.fitting([Host("n8", 3)]) is None
    assert rule.fitting([Host("n8", 1)]) is None
    assert rule.fitting([Host("n7", 2), Host("n8", 2), Host("n9", 2)]) is None
    assert begin(spares=[], least=2).fitting([Host("n9", 2)]) is None
    assert rule.fitting([]) == {}


def test_a_host_returns_to_its_own_place_and_only_if_it_has_no_guest() -> None:
    rule = begin(spares=[], least=4).withdraw(["n2"])
    assert rule is not None
    rule = left(rule, 1)
    assert str(rule.members) == "2;n0:4@0,n2:2@2-,n2:2@0-"
    assert rule.fitting([Host("n2", 2)]) is None
    assert rule.fitting([Host("n0", 2)]) is None
    rule = left(rule, 1)
    assert rule.fitting([Host("n9", 2)]) == {1: "n9"}
    rule = begin(spares=[], least=4).withdraw(["n1", "n2"])
    assert rule is not None and rule.fitting([Host("n2", 2)]) == {2: "n2"}


def test_hosts_that_answer_can_be_given_up() -> None:
    rule = begin(spares=[], least=4)
    after = rule.withdraw(["n1"])
    assert after is not None
    assert str(after.members) == "1;n0:4@0,n1:2@0-,n2:2@0"
    assert after.answered(4, 0, 1)[1]  # it goes on until its ranks have left
    assert after.withdraw(["n1"]) == after
    both = after.withdraw(["n2"])
    assert both is not None and both.members.staying == 4
    assert rule.withdraw(["n0"]) is None
    assert begin(spares=[], least=5).withdraw(["n1", "n2"]) is None
    assert begin(spares=[]).withdraw(["n1"]) is None
