"""How `hvdft tune` searches: coordinate descent, a sequential test for every comparison. Pure.

One setting is changed at a time. Its next value challenges the present one: both are measured, in
rounds, and each round is won by the challenger if it takes less time by more than `MARGIN`. Wald's
sequential probability ratio test on these wins decides when there are enough rounds: a challenger
that is no better is dropped after a few rounds, and a better one needs a series of wins. Only wins
count, so a disturbed round weighs no more than any other, and a gain within the noise is no gain.

A setting whose values have an order is followed as long as the time improves, first upwards; of
other settings each value is tried. The search goes through the settings repeatedly, until each one
has been tried without a change.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

Point = Mapping[str, str]  # values by the names of knobs

MARGIN = 0.02  # of the time: less is not worth a setting
MOST_ROUNDS = 30  # of a comparison; undecided then means no better
# The test decides between these shares of rounds won: of no better ones, and of better ones.
_NO_BETTER, _BETTER = 0.5, 0.85
_WRONGLY_TAKEN, _WRONGLY_DROPPED = 0.005, 0.05
_WIN = math.log(_BETTER / _NO_BETTER)
_LOSS = math.log((1 - _BETTER) / (1 - _NO_BETTER))
_TAKE = math.log((1 - _WRONGLY_DROPPED) / _WRONGLY_TAKEN)
_DROP = math.log(_WRONGLY_DROPPED / (1 - _WRONGLY_TAKEN))


@dataclass(frozen=True)
class Knob:
    """A setting that is searched over.

    Attributes:
        name: The name that the user sees.
        variable: The environment variable.
        values: The values to try.
        default: The value to begin with, one of `values`.
        ordered: Whether neighbouring values give similar times.
    """

    name: str
    variable: str
    values: Sequence[str]
    default: str
    ordered: bool = False


@dataclass(frozen=True)
class Question:
    """Asks for one round.

    Attributes:
        incumbent: The best known point.
        challenger: Another point, which differs in one knob.
        knob: The name of this knob.
        left: The most comparisons that are left in this pass, including this one.
    """

    incumbent: Point
    challenger: Point
    knob: str
    left: int


@dataclass
class Comparison:
    """A challenger against the incumbent.

    Attributes:
        knob: The knob in which they differ.
        before: The value of the incumbent.
        value: The value of the challenger.
        ratios: For each round, ln(challenger's time / incumbent's time), the mean over the sizes.
        taken: Whether the challenger was taken.
        why_not: Why the challenger could not be measured; "" if it was.
    """

    knob: str
    before: str
    value: str
    ratios: list[float] = field(default_factory=list)
    taken: bool = False
    why_not: str = ""

    @property
    def undecided(self) -> bool:
        """Whether more rounds are needed for a verdict."""
        return not self.why_not and verdict(self.ratios) is None

    @property
    def change(self) -> float:
        """The median change of the time, such as -0.1 for a tenth less."""
        return math.expm1(median(self.ratios)) if self.ratios else math.nan


def verdict(ratios: Sequence[float]) -> bool | None:
    """Returns whether a challenger is better; None if more rounds are needed."""
    wins = sum(ratio < math.log1p(-MARGIN) for ratio in ratios)
    evidence = wins * _WIN + (len(ratios) - wins) * _LOSS
    if evidence >= _TAKE:
        return True
    return False if evidence <= _DROP or len(ratios) >= MOST_ROUNDS else None


class Search:
    """Asks for rounds by `question`, and receives their results.

    Attributes:
        point: The best known point.
        comparisons: All comparisons so far; the last one may be under way.
        question: The next question; None: the search is over.
    """

    def __init__(self, knobs: Sequence[Knob]) -> None:
        self._knobs = knobs
        self.point: dict[str, str] = {knob.name: knob.default for knob in knobs}
        self.comparisons: list[Comparison] = []
        self._questions = self._passes()
        self.question: Question | None = next(self._questions, None)

    def tell(self, ratio: float) -> None:
        """Receives the result of a round.

        Args:
            ratio: As in `Comparison.ratios`.
        """
        self.comparisons[-1].ratios.append(ratio)
        self.question = next(self._questions, None)

    def tell_failure(self, why: str) -> None:
        """The challenger of the last question cannot be measured."""
        self.comparisons[-1].why_not = why
        self.question = next(self._questions, None)

    def _passes(self) -> Iterator[Question]:
        tried: dict[str, dict[str, str]] = {}  # the others' values when a knob was tried last
        while due := [knob for knob in self._knobs if tried.get(knob.name) != self._but(knob)]:
            for place, knob in enumerate(due):
                later = sum(map(_tries, due[place + 1 :]))
                yield from self._follow(knob, later) if knob.ordered else self._each(knob, later)
                tried[knob.name] = self._but(knob)

    def _but(self, knob: Knob) -> dict[str, str]:
        return {name: value for name, value in self.point.items() if name != knob.name}

    def _each(self, knob: Knob, later: int) -> Iterator[Question]:
        values = [value for value in knob.values if value != self.point[knob.name]]
        for number, value in enumerate(values):
            yield from self._compare(knob, value, len(values) - number + later)

    def _follow(self, knob: Knob, later: int) -> Iterator[Question]:
        for step in (1, -1):
            moved = False
            while True:
                at = knob.values.index(self.point[knob.name]) + step
                if not 0 <= at < len(knob.values):
                    break
                yield from self._compare(knob, knob.values[at], later + (2 if step == 1 else 1))
                if not self.comparisons[-1].taken:
                    break
                moved = True
            if moved:
                return  # the value on the other side has just been left

    def _compare(self, knob: Knob, value: str, left: int) -> Iterator[Question]:
        found = Comparison(knob.name, self.point[knob.name], value)
        self.comparisons.append(found)
        challenger = {**self.point, knob.name: value}
        while not found.why_not and (better := verdict(found.ratios)) is None:
            yield Question(dict(self.point), challenger, knob.name, left)
        found.taken = not found.why_not and bool(better)
        if found.taken:
            self.point[knob.name] = value


def _tries(knob: Knob) -> int:
    return min(len(knob.values) - 1, 2) if knob.ordered else len(knob.values) - 1
