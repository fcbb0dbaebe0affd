"""The drill that slows a rank down."""

from hvd_ft.job import drills
from hvd_ft.worker.slow_drill import SlowDrills


def entries(*texts: str) -> str:
    found = drills.drill_environment([drills.parse(text) for text in texts], 2, 0)
    return found.get(drills.VARIABLE, "")


class Rank:
    """A rank whose steps take 100 ms of computing, and what the drill makes of them."""

    def __init__(self, text: str) -> None:
        self.now_ns = 0
        self.slept: list[float] = []
        self.drill = SlowDrills(text, self.sleep)

    def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 3))
        self.now_ns += round(seconds * 1e9)  # which counts as computing

    def step(self, number: int) -> None:
        self.now_ns += 100_000_000
        self.drill.strike(number, lambda: self.now_ns)


def test_steps_take_so_many_times_as_long_as_without_it() -> None:
    rank = Rank(entries("rank=2,slow=1.3"))
    for number in range(1, 6):
        rank.step(number)
    assert rank.slept == [0.03] * 4  # nothing is known of the first one


def test_it_begins_at_its_step_also_where_that_was_passed_over() -> None:
    rank = Rank(entries("rank=2,step=3,slow=2"))
    for number in (1, 2, 4, 5):
        rank.step(number)
    assert rank.slept == [0.1, 0.1]


def test_the_slowest_of_several_counts_and_others_are_no_matter() -> None:
    rank = Rank(entries("rank=2,step=1,slow=2", "rank=2,step=3,slow=1.5", "rank=2,step=9,exit=1"))
    for number in range(1, 6):
        rank.step(number)
    assert rank.slept == [0.1] * 4


def test_without_such_a_drill_nothing_is_asked() -> None:
    drill = SlowDrills(entries("rank=2,step=1"), lambda _: None)
    drill.strike(1, lambda: 1 // 0)
