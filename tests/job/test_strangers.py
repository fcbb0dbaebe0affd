"""The rule for strangers: nobody stays, and nobody keeps others out."""

import hypothesis
from hypothesis import strategies as st

from hvd_ft.job.strangers import Strangers


def test_each_has_its_time() -> None:
    rule = Strangers(most=5, seconds=2.0)
    assert rule.next_late == float("inf")
    rule.arrived(1, "a", 0.0)
    rule.arrived(2, "a", 1.0)
    assert rule.next_late == 2.0
    assert rule.late(1.9) == []
    assert rule.late(2.0) == [1]
    rule.left(1)
    assert rule.next_late == 3.0
    rule.left(2)
    assert rule.least_welcome() is None
    assert len(rule) == 0


def test_the_address_with_the_most_makes_room() -> None:
    rule = Strangers(most=4, seconds=2.0)
    assert [rule.arrived(n, who, 0.0) for n, who in enumerate("baab")] == [None] * 4
    assert rule.arrived(4, "a", 0.0) == 0  # of two with as many the oldest
    rule.left(0)
    assert rule.arrived(5, "c", 0.0) == 1
    rule.left(1)
    assert rule.arrived(6, "c", 0.0) == 2


@hypothesis.given(st.lists(st.sampled_from(["arrive", "leave", "wait"]), max_size=60))
def test_a_process_of_the_job_is_not_kept_out_by_a_crowd_from_elsewhere(steps: list[str]) -> None:
    """It has come before, and goes only when its time is over."""
    rule, now, number, there = Strangers(most=8, seconds=10.0), 0.0, 1, [0]
    rule.arrived(0, "ours", now)
    for step in steps * 3:
        if step == "arrive":
            victim = rule.arrived(number, "crowd", now)
            assert victim != 0
            there = [n for n in there if n != victim] + [number]
            if victim is not None:
                rule.left(victim)
            number += 1
        elif step == "leave" and len(there) > 1:
            rule.left(there.pop())
        elif step == "wait":
            now += 0.01
        assert len(rule) <= 8
        assert rule.late(now) == []
