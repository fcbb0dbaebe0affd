"""Which hosts a job has, as hosts are named, lost and found."""

import math
from itertools import product

import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.members.hosts import Host, parse_hosts
from hvd_ft.members.resizing_rule import HostPool, Limits, describe_change, slots_of


def hosts(text: str) -> tuple[Host, ...]:
    return parse_hosts(text, 0) if text else ()


def pool(text: str, least: int = 2, most: int | None = None) -> HostPool:
    return HostPool(Limits(least, most, (4.0, 40.0))).named(hosts(text))


def none() -> float:
    return 0.0


@pytest.mark.parametrize(
    ("limits", "size", "part"),
    [
        (Limits(5), 4, "--min-np 5 is more than -np 4"),
        (Limits(2, 3), 4, "--max-np 3 is less than -np 4"),
        (Limits(2, 4, (5.0, 2.0)), 4, "5 2: give two times .* the smaller one first"),
        (Limits(2, 4, (0.9, 2.0)), 4, "give two times from 1 s to 3600 s"),
        (Limits(2, 4, (1.0, 3601.0)), 4, "give two times from 1 s to 3600 s"),
    ],
)
def test_limits_that_contradict_each_other(limits: Limits, size: int, part: str) -> None:
    with pytest.raises(HvdFtError, match=part):
        limits.check(size)


def test_limits_may_be_equal() -> None:
    Limits(4, 4, (3.0, 3.0)).check(4)


def test_hosts_are_taken_in_order_up_to_the_most() -> None:
    assert pool("n0:2,n1:4,n2:1", most=5).choice(0) == hosts("n0:2,n1:3")
    assert pool("n0:2,n1:4,n2:1").choice(0) == hosts("n0:2,n1:4,n2:1")


def test_known_hosts_keep_their_place_whatever_order_the_script_prints() -> None:
    renamed = pool("n0:2,n1:1").named(hosts("n2:1,n1:3,n0:2"))
    assert renamed.choice(0) == hosts("n0:2,n1:3,n2:1")


def test_a_lost_host_is_left_out_twice_as_long_each_time() -> None:
    found = pool("n0:2,n1:1")
    for number, seconds in enumerate((8, 16, 32, 40, 40)):
        now = 100.0 * number
        found = found.lost(["n1"], now, none)
        assert found.choice(now + seconds - 0.1) == hosts("n0:2")
        assert found.choice(now + seconds) == hosts("n0:2,n1:1")


def test_hosts_that_are_lost_together_come_back_one_after_the_other() -> None:
    drawn = iter([0.5, 0.25])
    found = pool("n0:2,n1:1,n2:1").lost(["n1", "n2"], 0, lambda: next(drawn))
    assert found.back_at == {"n1": 4 * 2.5, "n2": 4 * 2.25}
    most = pool("n0:2,n1:1")
    for number in range(2000):  # however often: no number overflows
        most = most.lost(["n1"], 100.0 * number, lambda: 0.999)
    assert most.back_at["n1"] == 100.0 * 1999 + 40


def test_a_host_that_is_left_out_is_not_left_out_for_longer() -> None:
    once = pool("n0:2,n1:1").lost(["n1"], 0, none)
    assert once.lost(["n1"], 7, none) == once
    assert once.lost(["n1"], 8, none).back_at == {"n1": 8 + 16}


def test_its_cooldowns_are_horovodruns(monkeypatch: pytest.MonkeyPatch) -> None:
    discovery = pytest.importorskip("horovod.runner.elastic.discovery")
    now = 0.0
    monkeypatch.setattr(discovery.time, "time", lambda: now)
    for drawn in (0.0, 0.3, 0.9):
        monkeypatch.setattr(discovery.random, "uniform", lambda _low, _high, drawn=drawn: drawn)
        theirs = discovery.HostState((4, 40))
        ours = pool("n0:2,n1:1")
        for now in (100.0, 101.0, 120.0, 150.0, 250.0, 300.0, 300.5):
            theirs.blacklist()
            ours = ours.lost(["n1"], now, lambda drawn=drawn: drawn)
            assert ours.back_at["n1"] == pytest.approx(theirs._cooldown_period_end_ts)


def test_without_a_cooldown_a_lost_host_is_left_out_for_ever() -> None:
    found = HostPool(Limits(1)).named(hosts("n0:1,n1:1")).lost(["n1"], 0, none)
    assert found.back_at == {"n1": math.inf}
    assert found.named(hosts("n1:1,n0:1")).choice(1e12) == hosts("n0:1")


def test_below_the_least_there_is_no_choice() -> None:
    few = pool("n0:2,n1:1", least=3).lost(["n1"], 0, none)
    assert few.choice(1) == ()
    assert few.usable(1) == hosts("n0:2")


@pytest.mark.parametrize(
    ("named", "present", "change"),
    [
        ("n0:2", "n0:2", ""),
        ("n0:2,n1:1", "n0:2", "n0:2,n1:1"),
        ("n0:2,n1:1", "n0:2,n1:1", ""),
        ("n0:2", "n0:2,n1:1", "n0:2"),  # withdrawn
        ("n0:2,n1:1", "n0:2,n1:3", "n0:2,n1:1"),  # fewer slots
        ("n2:3", "n0:2,n1:1", "n2:3"),
        ("n0:1", "n0:2", ""),  # too few: better what there is
        ("", "n0:2", ""),
        ("n0:9", "n0:4", ""),  # it has the most already
        ("n1:4,n0:2", "n0:2,n1:2", ""),
    ],
)
def test_when_a_running_job_changes(named: str, present: str, change: str) -> None:
    assert pool(named, most=4).change(hosts(present), 0) == hosts(change)


def test_a_change_is_taken_once() -> None:
    """With whatever hosts are named, a job that has changed stays as it is."""
    for slots in product(range(4), repeat=3):
        named = [Host(f"n{n}", count) for n, count in enumerate(slots) if count]
        for before in ("n0:2", "n0:1,n1:1", "n2:3"):
            change = HostPool(Limits(2, 5)).named(named).change(hosts(before), 0)
            assert not change or 2 <= slots_of(change) <= 5
            assert HostPool(Limits(2, 5)).named(named).change(change, 0) == () or not change


def test_a_change_in_words() -> None:
    said = describe_change(hosts("n0:2,n1:2"), hosts("n0:2,n1:1,n2:1"))
    assert said == "the hosts have changed (n2 more; n1 less)"
