"""`hvdft tune`: drives the search with jobs that take turns, and checks its result at the end."""

import contextlib
import datetime
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median

from hvd_ft.errors import HvdFtError
from hvd_ft.launcher.tuning import place_here
from hvd_ft.launcher.tuning_file import Place, Tuning
from hvd_ft.members.hosts import Host, host_list
from hvd_ft.tools.tune.search import Comparison, Knob, Point, Search
from hvd_ft.tools.tune.side import Side

CHECK_ROUNDS = 8  # of the result against the defaults


@dataclass(frozen=True)
class Plan:
    """What to tune.

    Attributes:
        hosts: The hosts of the job; none: all ranks are on this host.
        size: Number of ranks.
        sizes: Sizes of the allreduces in bytes.
        seconds: The time after which the search begins no further round.
        knobs: The settings to try.
    """

    hosts: Sequence[Host]
    size: int
    sizes: Sequence[int]
    seconds: float
    knobs: Sequence[Knob]

    def variables(self, point: Point) -> dict[str, str]:
        """Returns the variables that a point sets: those that differ from the defaults."""
        return {
            knob.variable: point[knob.name]
            for knob in self.knobs
            if point[knob.name] != knob.default
        }


@dataclass
class Result:
    """The result of a search.

    Attributes:
        comparisons: All comparisons, in order.
        tuning: The result for a tuning file.
        taken_back: The settings that the search had found if the last check did not confirm them;
            otherwise empty.
        in_time: Whether the search was completed.
    """

    comparisons: Sequence[Comparison]
    tuning: Tuning
    taken_back: Mapping[str, str] = field(default_factory=dict)
    in_time: bool = True


class Sides:
    """The running jobs: one for each of the points that are compared now.

    Args:
        start: Starts a job with the variables of a point.
        variables: Returns the variables of a point.
    """

    def __init__(
        self,
        start: Callable[[Mapping[str, str]], Side],
        variables: Callable[[Point], dict[str, str]],
    ) -> None:
        self._start = start
        self._variables = variables
        self._running: dict[tuple[tuple[str, str], ...], Side] = {}

    def of(self, *points: Point) -> list[Side]:
        """Returns the jobs of these points; ends other jobs, and starts those that are missing.

        Raises:
            HvdFtError: One of the jobs does not start.
        """
        keys = [tuple(sorted(self._variables(point).items())) for point in points]
        for key in self._running.keys() - set(keys):
            self._running.pop(key).end()
        for key in keys:
            if key not in self._running:
                self._running[key] = self._start(dict(key))
        return [self._running[key] for key in keys]

    def end(self) -> None:
        """Ends all jobs."""
        while self._running:
            self._running.popitem()[1].end()


def tune(plan: Plan, show: Callable[[str], None], search: Search | None = None) -> Result:
    """Searches, and checks the result.

    Args:
        plan: What to tune.
        show: Called with lines for the user.
        search: The search over the plan's knobs; it has the comparisons if this is cut short.

    Raises:
        HvdFtError: The job does not run with its default settings.
    """
    with running_sides(plan) as sides:
        search = Search(plan.knobs) if search is None else search
        defaults = dict(search.point)
        [first] = sides.of(defaults)
        place = _place(plan, first.cpus)
        in_time = _search(plan, search, sides, show)
        found = plan.variables(search.point)
        show("comparing the result with the defaults" if found else "measuring the defaults")
        ours, theirs = _check(plan, sides, search.point, defaults)
    kept = bool(found) and median(map(log_ratio, ours, theirs)) < 0
    if not kept:
        ours = theirs
    seconds = {
        str(size): (median(of_size), median(tuned))
        for size, of_size, tuned in zip(plan.sizes, zip(*theirs, strict=True),
                                        zip(*ours, strict=True), strict=True)
    }  # fmt: skip
    today = datetime.date.today().isoformat()
    tuning = Tuning(place, found if kept else {}, today, seconds)
    return Result(search.comparisons, tuning, {} if kept else found, in_time)


@contextlib.contextmanager
def running_sides(plan: Plan) -> Iterator[Sides]:
    """Yields the jobs of a plan; they have all ended after the `with` block."""
    flags = ["-np", str(plan.size)]
    if plan.hosts:
        flags += ["-H", host_list(plan.hosts)]
    with tempfile.TemporaryDirectory(prefix="hvdft-tune-") as scratch:
        number = 0

        def start(variables: Mapping[str, str]) -> Side:
            nonlocal number
            number += 1
            side = Side(Path(scratch), str(number))
            try:
                side.start(flags, variables)
            except BaseException:
                side.end()
                raise
            return side

        sides = Sides(start, plan.variables)
        try:
            yield sides
        finally:
            sides.end()


def _place(plan: Plan, cpus: Sequence[int]) -> Place:
    """Returns the place of the result; the CPUs of all hosts are known now."""
    place = place_here(plan.hosts, plan.size, os.environ)
    rank, known = 0, dict(place.cpus)
    for host in plan.hosts:
        if rank < plan.size:
            known[host.name] = cpus[rank]
        rank += host.slots
    return Place(place.hosts, place.ranks, known, place.provider, place.versions)


def log_ratio(tried: Sequence[float], present: Sequence[float]) -> float:
    """Returns ln(time / other time) of two rounds, the mean over the sizes."""
    return fmean(math.log(a / b) for a, b in zip(tried, present, strict=True))


def _search(plan: Plan, search: Search, sides: Sides, show: Callable[[str], None]) -> bool:
    """Measures until the search is over; returns False if the time was over before."""
    begin = time.monotonic()
    rounds = done = 0
    while (question := search.question) is not None:
        if time.monotonic() - begin > plan.seconds:
            return False
        asked = search.comparisons[-1]
        try:
            pair = sides.of(question.incumbent, question.challenger)
            present, tried = take_turns(pair, plan.sizes, rounds)
        except HvdFtError as error:
            sides.end()  # either may still be at what it was asked
            sides.of(question.incumbent)[0].measure(plan.sizes)  # raises if that is what failed
            search.tell_failure(str(error))
        else:
            search.tell(log_ratio(tried, present))
        rounds += 1
        if search.question is None or search.comparisons[-1] is not asked:
            done += 1
            show(describe(asked) + _left(search, (time.monotonic() - begin) / done))
    return True


def take_turns(sides: Sequence[Side], sizes: Sequence[int], number: int) -> list[list[float]]:
    """Measures a round of each job; the order alternates with the number of the round."""
    order = range(len(sides)) if number % 2 == 0 else reversed(range(len(sides)))
    measured = {at: sides[at].measure(sizes) for at in order}
    return [measured[at] for at in range(len(sides))]


def describe(comparison: Comparison) -> str:
    """Describes a finished comparison in a line."""
    words = f"{comparison.knob}: {comparison.before or 'unset'} -> {comparison.value or 'unset'}"
    if comparison.why_not:
        return f"{words}: not possible ({comparison.why_not})"
    change = comparison.change
    less = f"{abs(change):.0%} {'less' if change < 0 else 'more'} time"
    verdict = "taken" if comparison.taken else "no gain beyond the noise"
    return f"{words}: {less} in {len(comparison.ratios)} rounds, {verdict}"


def _left(search: Search, seconds_each: float) -> str:
    if search.question is None:
        return ""
    left = search.question.left
    minutes = left * seconds_each / 60
    return f"; {left} more to compare at most, about {max(minutes, 0.1):.1f} min"


def _check(
    plan: Plan, sides: Sides, point: Point, defaults: Point
) -> tuple[list[list[float]], list[list[float]]]:
    """Measures the result and the defaults in turn; returns their seconds by round and size."""
    points = [point, defaults] if plan.variables(point) else [defaults]
    pair = sides.of(*points)
    rounds = [take_turns(pair, plan.sizes, number) for number in range(CHECK_ROUNDS)]
    return [times[0] for times in rounds], [times[-1] for times in rounds]
