"""The leases of hosts, the watch over links, and beats: rules, with a clock of the test's own."""

import pytest
from hvd_ft.launcher.host_leases import Change, HostLeases, Lease
from hvd_ft.launcher.link_watch import Broken, LinkWatch

from hvd_ft.job.beats import Beats
from hvd_ft.job.settings import Settings
from hvd_ft.native.links import GATHER, MIRROR, TO_PREDECESSOR, TO_SUCCESSOR, Counts, End

LIMITS = Settings(suspect_seconds=5, lease_seconds=20, host_timeout_seconds=60)


def run(leases: HostLeases, begin: int, end: int, *answering: str) -> list[tuple[int, Change]]:
    """Looks every second, at which these hosts answer."""
    changes = []
    for now in range(begin, end):
        for host in answering:
            leases.answered(host, now)
        changes += [(now, change) for change in leases.look(now)]
    return changes


def test_a_host_that_is_silent_becomes_suspect_then_lost_then_is_given_up() -> None:
    leases = HostLeases(LIMITS)
    assert run(leases, 1, 11, "n0", "n1") == []
    assert run(leases, 11, 71, "n0") == [
        (15, Change("n1", Lease.SUSPECT, Lease.VALID, 5)),
        (30, Change("n1", Lease.LOST, Lease.SUSPECT, 20)),
    ]
    assert leases.silent == {"n1": Lease.LOST}
    assert leases.given_up(70) == {}
    assert leases.given_up(70.5) == {"n1": 60.5}
    leases.forget(["n1"])
    assert leases.silent == {}


def test_a_host_that_answers_again_has_its_lease_again() -> None:
    leases = HostLeases(LIMITS)
    run(leases, 1, 2, "n0")
    run(leases, 2, 30)
    assert leases.silent == {"n0": Lease.LOST}
    leases.answered("n0", 26)  # what was on its way comes first
    assert run(leases, 30, 32, "n0") == [(30, Change("n0", Lease.VALID, Lease.LOST, 29))]
    assert leases.silent == {}
    run(leases, 32, 39)
    assert run(leases, 39, 40, "n0") == [(39, Change("n0", Lease.VALID, Lease.SUSPECT, 8))]


def test_an_old_answer_renews_nothing() -> None:
    """A lease counts from when the host was asked."""
    leases = HostLeases(LIMITS)
    run(leases, 1, 6, "n0")
    leases.answered("n0", 1)
    assert run(leases, 6, 10) == []
    leases.answered("n0", 2)
    assert [change.lease for _, change in run(leases, 10, 12)] == [Lease.SUSPECT]


def test_a_launcher_that_stood_still_itself_blames_nobody() -> None:
    leases = HostLeases(LIMITS)
    run(leases, 1, 3, "n0")
    assert leases.look(500) == []
    assert leases.given_up(500) == {}
    assert [now for now, _ in run(leases, 501, 510)] == [504]


AT_1, AT_0 = End(1, 0, TO_PREDECESSOR), End(0, 1, TO_SUCCESSOR)


def watch(sent: Counts, received: Counts) -> LinkWatch:
    links = LinkWatch(30)
    links.counted({AT_0: sent})
    links.counted({AT_1: received})
    return links


def look(links: LinkWatch, seconds: int, silent: tuple[int, ...] = ()) -> Broken | None:
    found = [links.look(now, silent) for now in range(seconds + 1)]
    assert found[:-1] == [None] * seconds
    return found[-1]


@pytest.mark.parametrize(
    ("begun", "posted", "arrived", "broken"),
    [
        (4, 4, 3, True),  # on its way
        (8, 4, 3, True),
        (4, 8, 3, True),
        (3, 8, 3, False),  # nothing is sent
        (8, 3, 3, False),  # the other end waits for its own node
        (0, 0, 0, False),
    ],
)
def test_a_link_has_broken_if_what_both_ends_wait_for_does_not_come(
    begun: int, posted: int, arrived: int, broken: bool
) -> None:
    links = watch(Counts(begun, 1, 1), Counts(1, posted, arrived))
    assert look(links, 29) is None
    assert links.look(30) == (Broken(0, 1, TO_PREDECESSOR, 30) if broken else None)


def test_whatever_arrives_begins_the_time_anew() -> None:
    links = watch(Counts(9, 1, 1), Counts(1, 9, 1))
    assert look(links, 29) is None
    links.counted({AT_1: Counts(1, 9, 2)})
    assert [links.look(now) for now in (30, 59)] == [None, None]
    assert links.look(60) is not None
    links.counted({AT_1: Counts(1, 9, 9)})
    assert links.look(61) is None
    links.counted({AT_0: Counts(10, 1, 1), AT_1: Counts(1, 10, 9)})
    assert links.look(90) is None


def test_a_host_that_does_not_answer_is_the_leases_business() -> None:
    links = watch(Counts(4, 1, 1), Counts(1, 4, 3))
    assert look(links, 40, silent=(1,)) is None
    assert look(links, 40, silent=(0,)) is None
    assert [links.look(now) for now in (41, 70)] == [None, None]
    assert links.look(71) is not None


@pytest.mark.parametrize("kind", [MIRROR, GATHER])
def test_one_end_alone_tells_nothing(kind: str) -> None:
    links = LinkWatch(30)
    links.counted({End(2, 0, kind): Counts(1, 5, 1)})
    assert look(links, 40) is None
    links.counted({End(0, 2, kind): Counts(2, 1, 0)})  # and both directions count
    assert [links.look(now) for now in (41, 70)] == [None, None]
    assert links.look(71) in (Broken(0, 2, kind, 30), Broken(2, 0, kind, 30))


def test_beats_that_stay_away() -> None:
    beats = Beats(20)
    assert beats.look_at == float("inf")
    assert not beats.is_silent(1000)  # nothing was promised
    beats.heard(1000)
    for now in range(1001, 1021):
        assert beats.look_at <= now + 20
        assert not beats.is_silent(now)
    assert beats.is_silent(1021)
    beats.heard(1022)
    assert not beats.is_silent(1033)  # we stood still ourselves, …
    assert not beats.is_silent(1043)
    assert not beats.is_silent(1053)
    assert beats.is_silent(1054)
    beats.heard(1055)
    beats.stop()
    assert beats.look_at == float("inf")
    assert not any(beats.is_silent(now) for now in range(1056, 1100))
