"""Which link between two nodes is broken, with a clock of the test's own."""

import pytest

from hvd_ft.launcher.machine.link_watch import Broken, LinkWatch
from hvd_ft.native.links import GATHER, MIRROR, TO_PREDECESSOR, TO_SUCCESSOR, Counts, End

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


def test_of_each_link_it_is_known_for_how_long_nothing_has_arrived() -> None:
    links = watch(Counts(4, 1, 1), Counts(1, 4, 3))
    look(links, 5)
    assert list(links.states(5)) == [(AT_0, 1, 0.0), (AT_1, 3, 5.0)]
    links.counted({AT_1: Counts(1, 4, 4)})
    links.look(6)
    assert list(links.states(6)) == [(AT_0, 1, 0.0), (AT_1, 4, 0.0)]


def test_of_a_link_with_an_end_that_does_not_answer_nothing_is_known() -> None:
    links = watch(Counts(4, 1, 1), Counts(1, 4, 3))
    for silent in (0, 1):
        assert {seconds for *_, seconds in links.states(5, [silent])} == {float("inf")}
    links.counted({End(0, 2, MIRROR): Counts(1, 1, 1)})  # the other end has not answered yet
    assert [seconds for end, _, seconds in links.states(5) if end.kind == MIRROR] == [float("inf")]
