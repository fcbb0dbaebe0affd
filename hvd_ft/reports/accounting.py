"""Where the time of a job went: each moment of each rank is counted once. Pure.

A rank's events divide its life into start-up, steps, restarts, replays and the end. A wait for a
dead rank is charged to what that rank was doing: nobody had noticed its death yet (detection), it
was being restarted, or it replayed. Only waits that are recorded count, and those of ranks that
cannot have done anything else: a rank that dies while all others wait for it, and the ranks of a
job that ends before a dead one is back.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from hvd_ft.native.types import Event, EventType
from hvd_ft.reports.spans import Span, common, length, merged, without

NS = 1e9


class Use(StrEnum):
    """What time was used for; the value is the heading."""

    STEPS = "useful steps"
    SLOWER = "waiting for slower ranks"
    WAITING = "waiting"
    SNAPSHOTS = "snapshots"
    CHECKPOINTS = "checkpoints"
    DETECTION = "detection"
    RESTART = "restart"
    REPLAY = "replay"
    START = "start-up"
    END = "end"


LOST_TO_FAILURES = (Use.DETECTION, Use.RESTART, Use.REPLAY)


@dataclass(frozen=True)
class Account:
    """The time of one rank.

    Attributes:
        rank: Its number.
        spans: When it did what, CLOCK_MONOTONIC in ns: they divide the job's time.
        sums_ns: Parts of its useful steps of which only the sum is known.
    """

    rank: int
    spans: Mapping[Use, Sequence[Span]]
    sums_ns: Mapping[Use, int] = field(default_factory=dict)

    def ns(self, use: Use) -> int:
        """Returns the time for one use."""
        if use is Use.STEPS:
            return length(self.spans[use]) - sum(self.sums_ns.values())
        return length(self.spans[use]) + self.sums_ns.get(use, 0)


@dataclass(frozen=True)
class Accounts:
    """The time of a job.

    Attributes:
        begin_ns: Of the job, CLOCK_MONOTONIC.
        end_ns: Of the job; that of the last event.
        ranks: The account of each rank, in their order.
        outages: When at least one rank was away: died, and not back.
    """

    begin_ns: int
    end_ns: int
    ranks: Sequence[Account]
    outages: Sequence[Span]

    @property
    def total_ns(self) -> int:
        """The time of all ranks together."""
        return (self.end_ns - self.begin_ns) * len(self.ranks)

    def share(self, use: Use) -> float:
        """Returns the part of all ranks' time that went to one use."""
        used = sum(account.ns(use) for account in self.ranks)
        return used / self.total_ns if self.total_ns else 0.0

    def seconds(self, *uses: Use) -> float:
        """Returns the seconds that the job spent so: the mean of its ranks."""
        used = sum(account.ns(use) for use in uses for account in self.ranks)
        return used / NS / len(self.ranks) if self.ranks else 0.0


def account(
    events: Iterable[Event],
    *,
    begun_ns: int | None = None,
    stalls_ns: Mapping[int, Mapping[Use, int]] | None = None,
) -> Accounts:
    """Divides the time of each rank.

    Args:
        events: Of the run.
        begun_ns: When the job was started, if known; else its first event is its begin.
        stalls_ns: For a rank how much of its useful steps was something else, where only the sum is
            known. More than it has had of useful steps does not count.
    """
    by_rank: dict[int, list[Event]] = {}
    for event in sorted(events, key=lambda event: event.time_ns):
        if event.type is not EventType.LOST:  # which has no time
            by_rank.setdefault(event.rank, []).append(event)
    times = [event.time_ns for own in by_rank.values() for event in own]
    end_ns = max(times, default=0)
    begin_ns = min([*times, *([] if begun_ns is None else [begun_ns])]) if times else 0
    lives = {rank: _life(by_rank[rank], begin_ns, end_ns) for rank in sorted(by_rank)}
    restarts = merged(span for life in lives.values() for span in life[Use.RESTART])
    replays = merged(span for life in lives.values() for span in life[Use.REPLAY])
    outages = merged([*restarts, *replays])
    waits = {rank: _waits(by_rank[rank]) for rank in lives}
    written = _written(event for own in by_rank.values() for event in own)
    ranks = []
    for rank, life in lives.items():
        blocked = merged([*waits[rank], *_surely_blocked(rank, by_rank, waits, outages, end_ns)])
        spans = {**life, **_charged(life[Use.STEPS], blocked, restarts, replays)}
        spans[Use.RESTART] = merged([*spans[Use.RESTART], *life[Use.RESTART]])
        spans[Use.REPLAY] = merged([*spans[Use.REPLAY], *life[Use.REPLAY]])
        spans[Use.CHECKPOINTS] = common(life[Use.END], written)
        spans[Use.END] = without(life[Use.END], written)
        stalls = dict((stalls_ns or {}).get(rank, {}))
        if Use.SLOWER in stalls:  # without waits for a rank that was away
            stalls[Use.SLOWER] -= length(common(life[Use.STEPS], blocked))
        ranks.append(Account(rank, spans, _within(stalls, length(spans[Use.STEPS]))))
    return Accounts(begin_ns, end_ns, ranks, outages)


def _life(own: Sequence[Event], begin_ns: int, end_ns: int) -> dict[Use, list[Span]]:
    """Returns the spans of a rank by its own events alone."""
    restored = {e.incarnation for e in own if e.type is EventType.RESTORED}
    use = Use.START
    changes = [(begin_ns, use)]
    for event in own:
        match event.type:
            case EventType.STARTED if use is not Use.RESTART:
                use = Use.START
            case EventType.FAILED:
                use = Use.RESTART
            case EventType.ATTACHED if use is Use.RESTART and event.incarnation not in restored:
                use = Use.REPLAY  # of everything, as there is no snapshot yet
            case EventType.RESTORED if use is Use.RESTART:
                use = Use.REPLAY
            case EventType.JOINED:
                use = Use.STEPS
            case EventType.DONE:
                use = Use.END
        changes.append((event.time_ns, use))
    changes.append((end_ns, use))
    spans: dict[Use, list[Span]] = {use: [] for use in Use}
    for (start_ns, use), (stop_ns, _) in pairwise(changes):
        spans[use].append((start_ns, stop_ns))
    return {use: merged(of) for use, of in spans.items()}


def _waits(own: Iterable[Event]) -> list[Span]:
    return merged((e.time_ns - e.detail, e.time_ns) for e in own if e.type is EventType.WAITED)


def _surely_blocked(
    rank: int,
    by_rank: Mapping[int, Sequence[Event]],
    waits: Mapping[int, Sequence[Span]],
    outages: Sequence[Span],
    end_ns: int,
) -> list[Span]:
    """Returns when a rank waited, or was dead, though nothing of it is recorded."""
    found = []
    for event in by_rank[rank]:
        if event.type is EventType.FAILED:
            others = (_at(own, event.time_ns) for other, own in waits.items() if other != rank)
            since = [start for start, _ in filter(None, others)]
            if since:
                found.append((max(since), event.time_ns))
    if outages and outages[-1][1] == end_ns:
        found.append(outages[-1])
    return found


def _at(spans: Sequence[Span], time_ns: int) -> Span | None:
    """Returns the span of a merged list that lasted just before this moment."""
    i = bisect_left(spans, (time_ns, time_ns)) - 1
    return spans[i] if i >= 0 and spans[i][1] >= time_ns else None


def _charged(
    steps: Sequence[Span],
    blocked: Sequence[Span],
    restarts: Sequence[Span],
    replays: Sequence[Span],
) -> dict[Use, list[Span]]:
    """Divides a rank's steps by what it did not do in them: it was blocked."""
    idle = common(steps, blocked)
    of_restart = common(idle, restarts)
    rest = without(idle, restarts)
    of_replay = common(rest, replays)
    rest = without(rest, replays)
    begins = {start for start, _ in restarts}
    detection = [span for span in rest if span[1] in begins]
    return {
        Use.STEPS: without(steps, idle),
        Use.WAITING: without(rest, detection),
        Use.DETECTION: detection,
        Use.RESTART: of_restart,
        Use.REPLAY: of_replay,
    }


def _written(events: Iterable[Event]) -> list[Span]:
    """Returns when checkpoints were being written."""
    asked: dict[int, int] = {}
    spans = []
    for event in sorted(events, key=lambda event: event.time_ns):
        if event.type is EventType.CHECKPOINT:
            asked.setdefault(event.detail, event.time_ns)
        elif event.type is EventType.CHECKPOINTED and event.detail in asked:
            spans.append((asked[event.detail], event.time_ns))
    return merged(spans)


def _within(sums_ns: Mapping[Use, int], most_ns: int) -> dict[Use, int]:
    """Returns the sums, as far as they have room in this time."""
    found = {}
    for use, ns in sums_ns.items():
        found[use] = min(max(ns, 0), most_ns)
        most_ns -= found[use]
    return found
