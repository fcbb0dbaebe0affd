"""Who is named as slow: on series that jobs have recorded, and on made ones."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hvd_ft.agent.slow_rule import Sample, Slow, SlowRule
from hvd_ft.native.types import State, Times

SERIES = Path(__file__).parent / "slow_series"
MS = 1_000_000


def verdicts(
    looks: Iterator[tuple[float, Mapping[int, Sample]]], hosts: Sequence[Sequence[int]]
) -> list[tuple[float, Slow]]:
    """What the rule says, each with the seconds since the first look."""
    rule, found, begin = SlowRule(hosts), [], None
    for now, ranks in looks:
        begin = now if begin is None else begin
        found += [(now - begin, slow) for slow in rule.observe(now, ranks)]
    return found


def recorded(name: str) -> Iterator[tuple[float, dict[int, Sample]]]:
    """The looks of a series that slow_script.py has recorded in a job."""
    for line in (SERIES / f"{name}.jsonl").read_text().splitlines():
        now, *ranks = json.loads(line)
        yield (
            now,
            {
                rank: Sample(State(state), incarnation, step, Times(*times))
                for rank, (state, incarnation, step, *times) in enumerate(ranks)
                if State(state) is not State.DONE
            },
        )


def of_series(name: str, *hosts: Sequence[int]) -> list[tuple[tuple[int, ...], bool]]:
    """Who the rule names in a recorded series, and whether it had ended."""
    return [(slow.ranks, slow.ended) for _, slow in verdicts(recorded(name), hosts)]


def test_an_even_job_is_quiet_on_a_machine_with_six_times_as_much_to_do() -> None:
    assert of_series("even_under_load", range(3)) == []


def test_a_rank_slowed_by_30_percent_on_the_same_machine_is_named() -> None:
    """By the drill, after 200 steps of 95 ms: within 20 s of them."""
    ((seconds, slow),) = verdicts(recorded("one_slow"), [range(3)])
    begun = 200 * (slow.step_seconds or 0)
    assert slow.ranks == (1,) and begun < seconds < begun + 30


def test_a_slow_host_is_named() -> None:
    assert of_series("slow_host", range(2), range(2, 4)) == [((2, 3), False)]


@pytest.mark.parametrize("name", ["turns", "restart", "evaluation"])
def test_nobody_is_slow_by_turns_or_while_one_restarts_or_evaluates(name: str) -> None:
    """Each step another rank; one killed, away and replayed; rank 0 for 2 s of every 10."""
    assert of_series(name, range(3)) == []


# ---------------------------------------------------------------- made ones


class Job:
    """Ranks in steps that are as long as the slowest one's, and their hosts.

    Attributes:
        compute_ms: of each rank's steps, which a test changes.
    """

    def __init__(self, hosts: Sequence[int], ms: float = 100) -> None:
        self.now = 0.0
        self.ranks = {rank: Sample(State.RUNNING, 0, 0, Times()) for rank in range(sum(hosts))}
        self.compute_ms: dict[int, float] = dict.fromkeys(self.ranks, ms)
        ends = [sum(hosts[: n + 1]) for n in range(len(hosts))]
        self.hosts = [range(end - count, end) for end, count in zip(ends, hosts, strict=True)]
        self.rule = SlowRule(self.hosts)
        self.said: list[Slow] = []
        self._next = 0.0  # when a step is over

    def run(self, seconds: float, before_step: Callable[[int], None] = lambda step: None) -> None:
        """Looks every second."""
        for _ in range(round(seconds)):
            while self._next <= self.now + 1:
                before_step(self.ranks[0].step)
                self._step()
            self.now += 1
            self.said += self.rule.observe(self.now, self.ranks)

    def _step(self) -> None:
        longest = max(self.compute_ms[rank] for rank in self.ranks)
        self._next += (longest + 5) / 1000
        for rank, of in self.ranks.items():
            own = self.compute_ms[rank]
            times = Times(
                of.times.rounds + 1,
                of.times.compute_ns + round(own * MS),
                of.times.wait_ns + round((longest - own + 1) * MS),
                of.times.copy_ns + 3 * MS,
                of.times.network_ns + 1 * MS,
            )
            self.ranks[rank] = replace(of, step=of.step + 1, times=times)

    @property
    def named(self) -> list[tuple[tuple[int, ...], bool]]:
        """Who was said, and whether it had ended."""
        return [(slow.ranks, slow.ended) for slow in self.said]


def test_a_rank_slowed_by_30_percent_is_named_within_30_seconds_and_once() -> None:
    job = Job([2, 2])
    job.run(60)
    assert job.said == []
    job.compute_ms[2] = 130
    job.run(29)
    (slow,) = job.said
    assert slow.ranks == (2,) and not slow.ended and slow.late >= 0.75
    assert slow.step_seconds == pytest.approx(0.127, abs=0.01)
    assert 0.16 < slow.wait < 0.23
    job.run(600)
    assert len(job.said) == 1


def test_its_end_is_said_once_and_it_may_begin_again() -> None:
    job = Job([3])
    for ms, expected in ((140, 1), (100, 2), (140, 3), (100, 4)):
        job.compute_ms[1] = ms
        job.run(60)
        assert len(job.said) == expected
    assert job.named == [((1,), False), ((1,), True)] * 2
    assert 40 < job.said[1].seconds < 80 and job.said[1].wait == job.said[0].wait


def test_two_ranks_are_enough() -> None:
    job = Job([1, 1])
    job.compute_ms[1] = 130
    job.run(30)
    assert job.named == [((1,), False)]


def test_a_slow_host_is_named_instead_of_its_ranks_and_a_rank_of_it_later() -> None:
    job = Job([2, 2])
    job.compute_ms |= {2: 150, 3: 148}
    job.run(60)
    assert job.named == [((2, 3), False)]
    job.compute_ms[3] = 100
    job.run(60)
    assert job.named == [((2, 3), False), ((2, 3), True), ((2,), False)]


def test_of_one_host_alone_ranks_are_named() -> None:
    job = Job([4])
    job.compute_ms[3] = 150
    job.run(60)
    assert job.named == [((3,), False)]


def test_two_slow_ranks_of_different_hosts_are_both_named() -> None:
    job = Job([3, 3])
    job.compute_ms |= {0: 150, 5: 150}
    job.run(60)
    assert sorted(job.named) == [((0,), False), ((5,), False)]


def test_only_the_slowest_is_waited_for() -> None:
    job = Job([4])
    job.compute_ms |= {1: 200, 2: 130}  # the others wait for rank 1 alone
    job.run(60)
    assert job.named == [((1,), False)]
    job.compute_ms[1] = 100
    job.run(60)
    assert job.named[1:] == [((1,), True), ((2,), False)] or job.named[1:] == [
        ((2,), False),
        ((1,), True),
    ]


def test_who_is_slow_by_turns_is_not_named() -> None:
    job = Job([4])

    def turn(step: int) -> None:
        job.compute_ms = dict.fromkeys(job.ranks, 100.0) | {step // 50 % 4: 150}

    job.run(600, turn)
    assert job.said == []


def test_less_than_a_tenth_is_no_cost() -> None:
    job = Job([4])
    job.compute_ms[1] = 108
    job.run(600)
    assert job.said == []


def test_a_rank_on_the_border_is_not_said_again_and_again() -> None:
    job = Job([4])

    def wobble(step: int) -> None:
        job.compute_ms[1] = 150 if step // 10 % 2 else 110  # late in half of the looks

    job.compute_ms[1] = 150
    job.run(60)
    job.run(600, wobble)
    assert job.named == [((1,), False)]


def test_an_evaluation_by_rank_0_is_not_slowness() -> None:
    """One of 10 s after every 5 s of training, which the others wait for."""
    job = Job([4])

    def evaluate(step: int) -> None:
        job.compute_ms[0] = 10_000 if step % 50 == 49 else 100

    job.run(600, evaluate)
    assert job.said == []


def test_long_steps_take_some_of_them() -> None:
    job = Job([4], ms=10_000)
    job.compute_ms[2] = 14_000
    job.run(70)
    assert job.said == []
    job.run(50)
    assert job.named == [((2,), False)]
    assert job.said[0].step_seconds == pytest.approx(14, abs=1)


def test_while_a_rank_is_away_nobody_is_slow_and_then_it_begins_anew() -> None:
    job = Job([4])
    job.compute_ms[2] = 150
    job.run(15)
    away = replace(job.ranks[1], state=State.RESTARTING)
    job.ranks[1] = away
    for _ in range(100):
        job.now += 1
        job.said += job.rule.observe(job.now, job.ranks)
    job.ranks[1] = replace(away, state=State.RUNNING, incarnation=1)
    job._next = job.now
    job.run(18)
    assert job.said == []
    job.run(10)
    assert job.named == [((2,), False)]


def test_what_others_have_waited_for_a_restarted_rank_is_not_its_slowness() -> None:
    """Away for 3 s of every 10 s, in the same incarnation: its node was away, not its worker."""
    job = Job([4])
    for _ in range(60):
        job.run(7)
        job.ranks[1] = replace(job.ranks[1], state=State.RESTARTING)
        for _ in range(3):
            job.now += 1
            job.said += job.rule.observe(job.now, job.ranks)
        job.compute_ms[1] = 3000
        job._step()  # the round in which all waited for it
        job.compute_ms[1] = 100
        job.ranks[1] = replace(job.ranks[1], state=State.RUNNING)
        job._next = job.now
    assert job.said == []


def test_a_rank_that_is_served_from_the_log_waits_for_nobody_and_is_not_slow() -> None:
    job = Job([4])
    job.ranks[3] = replace(job.ranks[3], state=State.REPLAYING)
    job.compute_ms[3] = 200
    job.run(60)
    assert job.said == []


def test_a_restart_between_two_looks_begins_anew() -> None:
    job = Job([4])
    job.compute_ms[2] = 150
    job.run(15)
    job.ranks[1] = replace(job.ranks[1], incarnation=1)
    job.run(18)
    assert job.said == []
    job.run(10)
    assert job.named == [((2,), False)]


def test_a_rank_that_takes_no_part_is_not_slow() -> None:
    """Ranks 0 to 2 do collectives in a set of their own, in which rank 1 is the slow one."""
    job = Job([4])
    job.compute_ms[1] = 150
    aside = job.ranks[3]
    for _ in range(60):
        job.run(1)
        job.ranks[3] = aside
    assert job.said == []


def test_a_rank_that_leaves_is_forgotten() -> None:
    job = Job([4])
    job.compute_ms[3] = 150
    job.run(30)
    assert job.named == [((3,), False)]
    del job.ranks[3]
    job.run(60)
    assert len(job.said) == 1


def test_a_rank_that_waits_in_no_collective_is_no_news() -> None:
    """Nothing is judged, and nothing divided by 0, while no round ends; nor with one rank."""
    job = Job([4])
    for _ in range(100):
        job.now += 1
        assert job.rule.observe(job.now, job.ranks) == []
    alone = Job([1])
    alone.run(100)
    assert alone.said == []


def test_the_lines() -> None:
    slow = Slow((5,), False, 0.83, 24.2, 140 / 390, 0.39)
    assert slow.in_words("n1") == (
        "rank 5 on n1 is slow: last in 83 % of the last 24 s; the others wait 140 of 390 ms a step "
        "for it"
    )
    of_host = Slow((2, 3), False, 1.0, 20.0, 0.25, None)
    assert of_host.in_words("n1") == (
        "host n1 (ranks 2, 3) is slow: last in 100 % of the last 20 s; the others wait 25 % of the "
        "time for it"
    )
    short = Slow((0,), False, 1.0, 20.0, 0.25, 0.008)
    assert "2.0 of 8.0 ms a step" in short.in_words("n0")
    assert replace(slow, ended=True, seconds=312).in_words("n1") == (
        "rank 5 on n1 is no longer slow; it was for 312 s"
    )
