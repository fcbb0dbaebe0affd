"""When variables count as diverged, and when as a rank's own."""

from collections.abc import Sequence

import numpy as np
import pytest

from hvd_ft.native.types import Divergence
from hvd_ft.worker.divergence_rule import DivergenceRule, Kind, Variable, apart
from hvd_ft.worker.shared_contents import fingerprints

W, V, OWN = Variable("w", Kind.WEIGHT), Variable("v"), Variable("own", Kind.OWN)


class Cuts:
    """Feeds a rule with cuts, each given by the contents that every rank has of every variable."""

    def __init__(self, *variables: Variable, most: int = 100) -> None:
        self.variables, self.most = list(variables), most
        self.rule = DivergenceRule(most)
        self.cut, self.loop = 0, 0

    def add(self, *contents: Sequence[int], positions: Sequence[int] = ()) -> Divergence | None:
        """Adds a cut: for every variable its contents on every rank."""
        self.cut += 1
        ranks = [
            fingerprints(
                {
                    f"{number}:{v.name}": np.array(c)
                    for number, (v, c) in enumerate(zip(self.variables, own, strict=True))
                },
                self.cut,
                positions[rank] if positions else self.cut,
                self.most,
            )
            for rank, own in enumerate(zip(*contents, strict=True))
        ]
        return self.rule.compare(self.loop, 10 * self.cut, self.variables, ranks)


def test_a_weight_that_was_equal_once() -> None:
    cuts = Cuts(W)
    assert cuts.add([1, 1, 1]) is None
    assert cuts.add([2, 2, 5]) == Divergence("w", 20, (2,), 1, 10)


@pytest.mark.parametrize("variable", [W, V])
def test_one_that_has_changed_everywhere(variable: Variable) -> None:
    cuts = Cuts(variable)
    assert cuts.add([1, 1, 1]) is None
    assert cuts.add([2, 2, 2]) is None
    assert cuts.add([2, 2, 2]) is None
    assert cuts.add([9, 3, 3]) == Divergence(variable.name, 40, (0,), 1, 30)


def test_what_is_known_to_be_a_ranks_own_is_not_compared() -> None:
    cuts = Cuts(OWN)
    for contents in ([1, 1, 1], [2, 2, 2], [3, 3, 3], [4, 4, 4], [4, 4, 5]):
        assert cuts.add(contents) is None
    assert not cuts.rule.watches


def test_what_begins_equal_and_is_a_ranks_own() -> None:
    cuts = Cuts(V)
    for contents in ([0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 1], [0, 0, 2]):
        assert cuts.add(contents) is None


@pytest.mark.parametrize("variable", [W, V])
def test_sums_that_are_zero_every_other_time(variable: Variable) -> None:
    cuts = Cuts(variable)
    for number in range(1, 20):
        assert cuts.add([number, 2 * number, 3 * number]) is None
        for _ in range(number % 4):
            assert cuts.add([0, 0, 0]) is None


@pytest.mark.parametrize("variable", [W, V])
def test_a_ranks_own_that_becomes_the_same(variable: Variable) -> None:
    cuts = Cuts(variable)
    cuts.add([1, 2, 3])
    for same in (4, 5, 6):  # changed twice
        cuts.add([same] * 3)
    assert not cuts.rule.watches
    cuts.add([7, 7, 7])
    assert cuts.rule.watches
    assert cuts.add([8, 1, 8]) == Divergence(variable.name, 60, (1,), 1, 50)


def test_a_ranks_own_that_is_equal_with_pauses() -> None:
    cuts = Cuts(V)
    cuts.add([1, 2, 3])
    for same in (4, 5, 5, 6, 6):
        cuts.add([same] * 3)
    cuts.add([1, 2, 3])
    for same in (7, 8):  # counted anew
        cuts.add([same] * 3)
    assert not cuts.rule.watches


def test_it_is_told_once_until_it_is_equal_again() -> None:
    cuts = Cuts(W)
    cuts.add([1, 1, 1])
    assert cuts.add([2, 3, 2]) is not None
    assert not cuts.rule.watches
    assert cuts.add([4, 5, 4]) is None
    assert cuts.add([6, 6, 7]) is None
    assert cuts.add([8, 8, 8]) is None
    assert cuts.rule.watches
    assert cuts.add([9, 8, 9]) == Divergence("w", 60, (1,), 1, 50)


def test_several_at_once_are_one_and_how_many_more() -> None:
    cuts = Cuts(Variable("a", Kind.WEIGHT), OWN, *(Variable(x, Kind.WEIGHT) for x in "bcd"))
    cuts.add(*[[1, 1, 1]] * 5)
    found = cuts.add([1, 1, 1], [1, 2, 3], [1, 1, 2], [1, 1, 1], [3, 1, 1])
    assert found == Divergence("b", 20, (2,), 2, 10)
    assert found.what == "b and 1 more variable"
    # The others still count.
    assert cuts.add([2, 1, 1], [1, 2, 3], [1, 1, 2], [1, 1, 1], [3, 1, 1]) == Divergence(
        "a", 30, (0,), 1, 20
    )


@pytest.mark.parametrize(
    ("prints", "ranks"),
    [
        ("aab", (2,)),
        ("baa", (0,)),
        ("ab", (0, 1)),
        ("aabb", (0, 1, 2, 3)),
        ("abc", (0, 1, 2)),
        ("aabc", (0, 1, 2, 3)),
        ("aaabc", (3, 4)),
        ("aabbbba", (0, 1, 6)),
    ],
)
def test_which_ranks_stand_apart(prints: str, ranks: tuple[int, ...]) -> None:
    assert apart([each.encode() for each in prints]) == ranks


def test_who_is_named() -> None:
    alone = Divergence("w", 1, (2,), 1, 0)
    assert (alone.rank, alone.where, alone.what) == (2, "rank 2", "w")
    both = Divergence("w", 1, (0, 1), 3, 0)
    assert (both.rank, both.where, both.what) == (None, "ranks 0 and 1", "w and 2 more variables")
    assert Divergence("w", 1, (0, 1, 5), 1, 0).where == "ranks 0, 1 and 5"


def test_ranks_at_different_boundaries_are_not_compared() -> None:
    cuts = Cuts(W)
    cuts.add([1, 1, 1])
    assert cuts.add([2, 2, 3], positions=[5, 5, 6]) is None
    assert cuts.add([4, 4, 4]) is None
    assert cuts.add([4, 4, 5]) == Divergence("w", 40, (2,), 1, 30)


def test_a_new_process_begins_with_nothing() -> None:
    cuts = Cuts(W)
    cuts.add([1, 1, 1])
    assert cuts.add([1, 1, 2]) is not None
    cuts.rule = DivergenceRule(cuts.most)
    assert cuts.add([1, 1, 2]) is None
    assert cuts.add([3, 3, 4]) is None


def test_a_later_loop_goes_on_with_the_same_variables() -> None:
    cuts = Cuts(W)
    cuts.add([1, 1, 1])
    cuts.loop = 1
    assert cuts.add([1, 1, 2]) == Divergence("w", 20, (2,), 1, 0)


def test_a_later_loop_with_other_variables_begins_anew() -> None:
    cuts = Cuts(W)
    cuts.add([1, 1, 1])
    cuts.loop, cuts.variables = 1, [Variable("x", Kind.WEIGHT)]
    assert cuts.add([1, 2, 3]) is None
    assert cuts.add([1, 2, 4]) is None


def test_a_name_is_another_variable_in_a_later_loop_with_others() -> None:
    cuts = Cuts(V, W)
    for number in range(1, 4):
        assert cuts.add([number] * 3, [number] * 3) is None
    cuts.loop, cuts.variables = 1, [V]
    assert cuts.add([4, 5, 6]) is None


def test_what_is_there_at_some_cuts_only_hides_nothing() -> None:
    """Sums of gradients over several steps, for example, which are exchanged at the last."""
    cuts = Cuts(W)
    for number in range(1, 6):
        cuts.variables = [V, W] if number % 2 else [W]
        own = [[number, 2 * number, 3 * number]] if number % 2 else []
        assert cuts.add(*own, [number] * 3) is None
    cuts.variables = [W]
    assert cuts.add([6, 6, 7]) == Divergence("w", 60, (2,), 1, 50)


def test_variables_of_the_same_name_are_apart() -> None:
    cuts = Cuts(W, W)
    for contents in ([1, 1, 1], [2, 2, 2]):
        assert cuts.add(contents, [0, 0, 0]) is None
    assert cuts.add([3, 3, 3], [0, 9, 0]) == Divergence("w", 30, (1,), 1, 20)


def test_many_variables_have_a_fingerprint_in_common() -> None:
    weights = [Variable(f"w{number}", Kind.WEIGHT) for number in range(5)]
    cuts = Cuts(*weights, most=3)  # w0 w1, w2 w3, w4
    cuts.add(*[[1, 1, 1]] * 5)
    assert cuts.add([1, 1, 1], [1, 1, 1], [1, 1, 1], [1, 1, 2], [1, 1, 2]) == Divergence(
        "w2 … w3", 20, (2,), 3, 10
    )


@pytest.mark.parametrize("other", [Variable("v"), Variable("v", Kind.OWN)])
def test_a_group_is_no_surer_than_each_of_its_variables(other: Variable) -> None:
    cuts = Cuts(W, other, Variable("x", Kind.WEIGHT), most=2)
    cuts.add([1, 1, 1], [1, 1, 1], [1, 1, 1])
    assert cuts.add([1, 1, 1], [1, 1, 2], [1, 1, 1]) is None


def test_a_group_with_a_ranks_own_is_never_watched() -> None:
    cuts = Cuts(W, OWN, Variable("x", Kind.WEIGHT), most=2)
    for same in (1, 2, 3):
        cuts.add([same] * 3, [same] * 3, [1, 1, 1])
    assert cuts.add([4, 4, 4], [4, 4, 5], [1, 1, 1]) is None
