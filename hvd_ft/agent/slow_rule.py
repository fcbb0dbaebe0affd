"""The rule that decides which rank, or host, is slow: no clock, no I/O.

In synchronous training all ranks' steps take equally long, and the slow rank is the one for which
the others wait. So a rank's *wait* (the time for which it was blocked until all ranks had handed
their tensors over, measured on its own node: native.types.Times) is the slack that it has against
the slowest. No clocks of two hosts are compared, and what the network costs is no wait.

Every look closes an *interval* if all ranks have ended a round in it. In an interval a rank is
*late* if nobody waits less than it does, and the median of the others waits longer by a tenth of
the time. A rank is slow if it is late in three of four intervals of the last 20 s, and it is no
longer slow if it is in at most one of four. Who is late by turns is not slow; a host is, instead of
its ranks, if all of these are late.

| constant | value | reason |
|---|---|---|
| `SHARE` | 0.1 | a rank slowed by 30 % costs a job that computes half of its time 13 %; an even one on a busy machine differs by less |
| `NEAR` | 0.05 | half of it: several ranks of a slow host are all the slowest |
| `PERSISTENT`, `OVER` | 0.75, 0.25 | far apart, so that a rank on the border is not said again and again |
| `WINDOW_SECONDS` | 20 | with the look it makes less than 30 s; longer than a checkpoint or an evaluation by rank 0 |
| `LEAST_INTERVALS` | 6 | steps of more than 3 s: some of them, however long that takes |
"""  # noqa: E501

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from hvd_ft.native.types import State, Times

SHARE, NEAR = 0.1, 0.05
PERSISTENT, OVER = 0.75, 0.25
WINDOW_SECONDS = 20.0
LEAST_INTERVALS = 6


@dataclass(frozen=True)
class Sample:
    """What a rank has published.

    Attributes:
        state: of the rank.
        incarnation: of its worker.
        step: of its training loop.
        times: how it has spent its time so far.
    """

    state: State
    incarnation: int
    step: int
    times: Times


@dataclass(frozen=True)
class Slow:
    """Ranks that have begun to be slow, or that no longer are.

    Attributes:
        ranks: one, or all of a host.
        ended: whether they no longer are; the numbers are then those of their slow time.
        late: share of the intervals in which they were late.
        seconds: of the intervals; if they have ended, for how long they were slow.
        wait: share of the time for which the others wait for them.
        step_seconds: of a step; None if the script counts none.
    """

    ranks: tuple[int, ...]
    ended: bool
    late: float
    seconds: float
    wait: float
    step_seconds: float | None

    def in_words(self, host: str) -> str:
        """Returns the line for the user.

        Args:
            host: name of the ranks' host.
        """
        numbers = ", ".join(map(str, self.ranks))
        alone = len(self.ranks) == 1
        who = f"rank {numbers} on {host}" if alone else f"host {host} (ranks {numbers})"
        if self.ended:
            return f"{who} is no longer slow; it was for {self.seconds:.0f} s"
        cost = f"{percent(self.wait)} of the time"
        if self.step_seconds:
            whole = self.step_seconds * 1000
            cost = f"{_ms(self.wait * whole)} of {_ms(whole)} ms a step"
        return (
            f"{who} is slow: last in {percent(self.late)} of the last {self.seconds:.0f} s; the "
            f"others wait {cost} for it"
        )


@dataclass(frozen=True)
class _Interval:
    begin: float
    end: float
    steps: int
    late: Mapping[int, bool]  # by rank
    wait: Mapping[int, float]  # how much longer the others waited, as a share of the time


@dataclass(frozen=True)
class _Named:
    since: float
    last: Slow


class SlowRule:
    """The rule.

    Args:
        hosts: the ranks of each host.
    """

    def __init__(self, hosts: Sequence[Collection[int]]) -> None:
        self._hosts = hosts
        self._begin: tuple[float, dict[int, Sample]] | None = None  # of the interval
        self._window: deque[_Interval] = deque()
        self._named: dict[tuple[int, ...], _Named] = {}

    def observe(self, now: float, ranks: Mapping[int, Sample]) -> list[Slow]:
        """Judges the ranks.

        Args:
            now: seconds on any steady clock, every second or so.
            ranks: by rank, those that take part.

        Returns:
            Who has begun to be slow, or no longer is, since the last call.
        """
        if self._begin is None or not _are_same(self._begin[1], ranks):
            self._window.clear()  # it is another job now: a rank was restarted, has left, is back
            self._begin = None
        if any(sample.state is not State.RUNNING for sample in ranks.values()):
            self._begin = None  # what others wait now is no sign of slowness
            return []
        if self._begin is None:
            self._begin = now, dict(ranks)
            return []
        begin, before = self._begin
        spent = {rank: _between(before[rank].times, ranks[rank].times) for rank in ranks}
        if len(ranks) < 2 or not all(times.rounds > 0 for times in spent.values()):
            return []
        self._begin = now, dict(ranks)
        steps = max(ranks[rank].step - before[rank].step for rank in ranks)
        self._add(_interval(begin, now, max(steps, 0), spent))
        return list(self._verdicts(now, ranks))

    def _add(self, interval: _Interval) -> None:
        window = self._window
        window.append(interval)
        while len(window) > LEAST_INTERVALS and interval.end - window[1].begin >= WINDOW_SECONDS:
            window.popleft()

    def _verdicts(self, now: float, ranks: Collection[int]) -> Iterator[Slow]:
        span = self._window[-1].end - self._window[0].begin
        if len(self._window) < LEAST_INTERVALS or span < WINDOW_SECONDS:
            return
        for subject in list(self._named):
            if not set(subject) <= set(ranks):
                del self._named[subject]  # it has left
            elif min(map(self._late, subject)) <= OVER:
                was = self._named.pop(subject)
                wait, step = was.last.wait, was.last.step_seconds
                yield Slow(subject, True, was.last.late, now - was.since, wait, step)
        for subject in self._slow(ranks):
            found = self._found(subject, span)
            self._named[subject] = _Named(now, found)
            yield found

    def _slow(self, ranks: Collection[int]) -> Iterator[tuple[int, ...]]:
        """Yields who has become slow."""
        for all_ranks in self._hosts:
            host = tuple(rank for rank in all_ranks if rank in ranks)
            known = {rank for subject in self._named for rank in subject}
            slow = [rank for rank in host if self._is_slow(rank)]
            if not set(slow) - known:
                continue
            many = 1 < len(host) < len(ranks)
            if many and not known & set(host) and min(map(self._late, host)) > 0.5:
                yield host
            else:
                yield from ((rank,) for rank in slow if rank not in known)

    def _is_slow(self, rank: int) -> bool:
        return self._late(rank) >= PERSISTENT and self._wait(rank) >= SHARE

    def _late(self, rank: int) -> float:
        return fmean(interval.late[rank] for interval in self._window)

    def _wait(self, rank: int) -> float:
        return fmean(interval.wait[rank] for interval in self._window)

    def _found(self, subject: tuple[int, ...], span: float) -> Slow:
        steps = sum(interval.steps for interval in self._window)
        judged = sum(interval.end - interval.begin for interval in self._window)
        return Slow(
            subject,
            False,
            fmean(map(self._late, subject)),
            span,
            fmean(map(self._wait, subject)),
            judged / steps if steps else None,
        )


def _are_same(before: Mapping[int, Sample], now: Mapping[int, Sample]) -> bool:
    return before.keys() == now.keys() and all(
        before[rank].incarnation == now[rank].incarnation for rank in now
    )


def _between(before: Times, now: Times) -> Times:
    return Times(
        now.rounds - before.rounds,
        now.compute_ns - before.compute_ns,
        now.wait_ns - before.wait_ns,
        now.copy_ns - before.copy_ns,
        now.network_ns - before.network_ns,
    )


def _interval(begin: float, end: float, steps: int, spent: Mapping[int, Times]) -> _Interval:
    share = {rank: times.wait_ns / max(times.total_ns, 1) for rank, times in spent.items()}
    ordered, least = sorted(share.values()), min(share.values())
    wait = {rank: _median_without(ordered, own) - own for rank, own in share.items()}
    late = {rank: wait[rank] >= SHARE and share[rank] <= least + NEAR for rank in share}
    return _Interval(begin, end, steps, late, wait)


def _median_without(ordered: Sequence[float], one: float) -> float:
    """Returns the median of the others; of many ranks that of all is near enough."""
    if len(ordered) > 64:
        return median(ordered)
    others = list(ordered)
    others.remove(one)
    return median(others)


def _ms(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def percent(share: float) -> str:
    """Returns a share for the user."""
    return f"{share * 100:.0f} %"
