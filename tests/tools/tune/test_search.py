"""The search, on landscapes of which the best point is known."""

import math
import random
from collections.abc import Callable

import pytest

from hvd_ft.tools.tune.search import MARGIN, MOST_ROUNDS, Knob, Point, Search, verdict

GATHER = Knob("gather", "G", ("0", "4K", "16K", "64K", "256K"), "16K", ordered=True)
YIELD = Knob("yield", "Y", ("0", "1", "2", "3"), "1", ordered=True)
PIN = Knob("pin", "P", ("0", "1"), "1")
TOPOLOGY = Knob("topology", "T", ("hierarchical", "flat"), "hierarchical")
KNOBS = [TOPOLOGY, GATHER, YIELD, PIN]

Landscape = Callable[[Point], float]


def run(landscape: Landscape, noise: float, seed: int, knobs: list[Knob] = KNOBS) -> Search:
    """Searches; each measurement is off by a factor of about 1 + noise."""
    draw = random.Random(seed)
    search = Search(knobs)
    asked = 0
    while (question := search.question) is not None:
        times = [
            landscape(point) * math.exp(draw.gauss(0, noise))
            for point in (question.challenger, question.incumbent)
        ]
        differ = [name for name in question.incumbent if question.incumbent[name]
                  != question.challenger[name]]  # fmt: skip
        assert differ == [question.knob]
        search.tell(math.log(times[0] / times[1]))
        asked += 1
        assert asked < 3000
    return search


def bowl(best: Point, weight: float = 0.1) -> Landscape:
    """Each step away from the best point costs a share of the time."""

    def time(point: Point) -> float:
        away = sum(
            abs(knob.values.index(point[knob.name]) - knob.values.index(best[knob.name]))
            for knob in KNOBS
        )
        return math.exp(weight * away)

    return time


BEST = {"topology": "flat", "gather": "256K", "yield": "0", "pin": "0"}


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.05])
@pytest.mark.parametrize("seed", range(5))
def test_the_best_point_is_found_through_noise(noise: float, seed: int) -> None:
    search = run(bowl(BEST, 0.2), noise, seed)
    assert search.point == BEST
    taken = [each for each in search.comparisons if each.taken]
    assert [(each.knob, each.value) for each in taken] == [
        ("topology", "flat"), ("gather", "64K"), ("gather", "256K"), ("yield", "0"), ("pin", "0"),
    ]  # fmt: skip


def test_noise_alone_changes_nothing() -> None:
    changed = 0
    for seed in range(40):
        search = run(lambda _: 1.0, 0.1, seed)
        changed += sum(each.taken for each in search.comparisons)
        compared = len(search.comparisons)
        assert changed or compared == 6  # one of pin and topology each, two of the others
    assert changed <= 4


def test_a_gain_within_the_margin_is_no_gain() -> None:
    search = run(bowl(BEST, MARGIN / 2), 0.0, 0)
    assert search.point == {knob.name: knob.default for knob in KNOBS}
    assert all(len(each.ratios) <= 3 for each in search.comparisons)


def test_losers_go_early_and_winners_need_a_row_of_wins() -> None:
    assert verdict([]) is None
    loss, win = 0.0, -0.1
    losses = next(n for n in range(99) if verdict([loss] * n) is False)
    wins = next(n for n in range(99) if verdict([win] * n) is True)
    assert (losses, wins) == (3, 10)
    assert verdict([win] * wins + [loss]) is None  # one lost round: a few more wins are needed
    assert verdict([loss, -5.0, -5.0]) is None, "how much a round is won by does not matter"
    assert verdict([loss, win, win] * 10) is False, f"undecided after {MOST_ROUNDS} rounds"


def test_knobs_that_depend_on_each_other_are_gone_through_again() -> None:
    def time(point: Point) -> float:
        # Yielding pays only where nothing is pinned, which is tried later.
        return {("1", "1"): 1.0, ("1", "0"): 0.9, ("2", "0"): 0.8, ("3", "0"): 0.7}.get(
            (point["yield"], point["pin"]), 1.5
        )

    search = run(time, 0.01, 1)
    assert (search.point["yield"], search.point["pin"]) == ("3", "0")


def test_what_cannot_be_measured_is_passed_over() -> None:
    search = Search([TOPOLOGY, PIN])
    assert search.question and search.question.challenger["topology"] == "flat"
    search.tell_failure("it does not start")
    unpinned = {"topology": "hierarchical", "pin": "0"}
    assert search.question and search.question.challenger == unpinned
    while search.question and search.question.knob == "pin":
        search.tell(-0.5)
    search.tell_failure("it does not start either")
    assert search.question is None and search.point == unpinned
    # The other setting has changed since it was tried.
    assert [each.why_not for each in search.comparisons] == [
        "it does not start", "", "it does not start either",
    ]  # fmt: skip


def test_how_much_is_left_is_an_upper_bound() -> None:
    search = Search(KNOBS)
    lefts = []
    while search.question:
        if not search.comparisons[-1].ratios:
            lefts.append(search.question.left)
        search.tell(0.5)
    assert lefts == [6, 5, 4, 3, 2, 1]


def test_values_at_the_end_have_one_neighbour() -> None:
    end = Knob("end", "E", ("1", "2", "3"), "3", ordered=True)
    search = run(lambda point: float(point["end"]), 0.0, 0, [end])
    assert search.point == {"end": "1"}
    assert [each.value for each in search.comparisons] == ["2", "1"]
