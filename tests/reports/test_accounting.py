"""Where the time went: every moment of every rank is counted once, whatever has happened."""

import io
import signal
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table
from synthetic import MS, event, one_failure

from hvd_ft.native.types import Event, EventType
from hvd_ft.reports import cost_table
from hvd_ft.reports.accounting import Account, Accounts, Use, account
from hvd_ft.reports.checkpoint_model import checkpoints_alone
from hvd_ft.reports.report import Report
from hvd_ft.reports.spans import Span, common, length, merged, without

T = EventType


def spent(own: Account) -> dict[str, int]:
    """Milliseconds, without what is zero."""
    return {use.name: own.ns(use) // MS for use in Use if own.ns(use)}


def uses_of(events: Sequence[Event], rank: int) -> dict[str, int]:
    return spent(account(events).ranks[rank])


# ------------------------------------------------------------------ spans

TIMES = st.integers(-5, 25)
SPANS = st.lists(st.tuples(TIMES, TIMES), max_size=6)


def moments(spans: Sequence[Span]) -> set[int]:
    return {at for start, end in spans for at in range(start, end)}


@given(SPANS, SPANS)
def test_spans_are_sets_of_moments(one: list[Span], other: list[Span]) -> None:
    a, b = merged(one), merged(other)
    assert moments(a) == moments(one)
    assert moments(common(a, b)) == moments(a) & moments(b)
    assert moments(without(a, b)) == moments(a) - moments(b)
    for found in (a, common(a, b), without(a, b)):
        assert all(start < end for start, end in found)
        assert length(found) == len(moments(found))
    assert all(end < start for (_, end), (start, _) in pairwise(a))


# ------------------------------------------------------------------ every moment once

EVENTS = st.lists(
    st.builds(
        Event,
        time_ns=st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 40),
        type=st.sampled_from(EventType),
        rank=st.integers(0, 3),
        incarnation=st.integers(0, 2),
        detail=st.integers(0, (1 << 64) - 1) | st.integers(0, 20),
    ),
    max_size=40,
)
STALLS = st.dictionaries(
    st.integers(0, 3), st.dictionaries(st.sampled_from(Use), st.integers(-5, 1 << 65), max_size=2)
)


@given(EVENTS, st.none() | st.integers(-100, 100), STALLS)
def test_each_moment_of_each_rank_is_counted_once(
    events: list[Event], begun_ns: int | None, stalls: dict[int, dict[Use, int]]
) -> None:
    stalls = {rank: {use: ns for use, ns in of.items() if use is not Use.STEPS}
              for rank, of in stalls.items()}  # fmt: skip
    found = account(events, begun_ns=begun_ns, stalls_ns=stalls)
    whole = found.end_ns - found.begin_ns
    assert [own.rank for own in found.ranks] == sorted(
        {e.rank for e in events if e.type is not T.LOST}
    )
    for own in found.ranks:
        assert sum(own.ns(use) for use in Use) == whole
        assert all(own.ns(use) >= 0 for use in Use)
        spans = sorted(span for use in Use for span in own.spans[use])
        assert all(end == start for (_, end), (start, _) in pairwise(spans))
        if whole:
            assert (spans[0][0], spans[-1][1]) == (found.begin_ns, found.end_ns)
    assert sum(found.share(use) for use in Use) == pytest.approx(1.0 if found.total_ns else 0.0)


@given(EVENTS)
def test_the_order_of_events_in_the_file_does_not_matter(events: list[Event]) -> None:
    alone = [e for i, e in enumerate(events) if e.time_ns not in {o.time_ns for o in events[:i]}]
    assert account(alone) == account(alone[::-1])


# ------------------------------------------------------------------ what time is charged to


def test_a_failure_is_charged_on_the_rank_that_died_and_on_those_that_waited() -> None:
    assert uses_of(one_failure(), 1) == {
        "START": 2500, "STEPS": 4580, "RESTART": 2820, "REPLAY": 100,
    }  # fmt: skip
    assert uses_of(one_failure(), 0) == {
        "START": 2500, "STEPS": 4600, "RESTART": 2790, "REPLAY": 100, "WAITING": 10,
    }  # fmt: skip


def test_a_wait_that_begins_before_a_death_is_noticed_is_its_detection() -> None:
    events = [
        *(event(0, T.STARTED, rank) for rank in range(3)),
        *(event(100, T.JOINED, rank) for rank in range(3)),
        event(1000, T.FAILED, 1, 0, signal.SIGKILL),
        event(1500, T.RESTORED, 1, 1),
        event(1600, T.JOINED, 1, 1),
        event(1610, T.WAITED, 0, 0, 910 * MS),
        event(1620, T.WAITED, 2, 0, 820 * MS),
        *(event(2000, T.DONE, rank, int(rank == 1)) for rank in range(3)),
    ]
    charged = {"START": 100, "RESTART": 500, "REPLAY": 100}
    assert uses_of(events, 0) == {**charged, "STEPS": 990, "DETECTION": 300, "WAITING": 10}
    assert uses_of(events, 2) == {**charged, "STEPS": 1080, "DETECTION": 200, "WAITING": 20}
    # From when the last of the others waited for it, it was dead or it kept all of them waiting.
    assert uses_of(events, 1) == {**charged, "STEPS": 1100, "DETECTION": 200}


def test_a_rank_that_dies_while_it_waits_was_waiting() -> None:
    """Its own wait is not recorded, as it never ended."""
    events = [
        *(event(0, T.JOINED, rank) for rank in range(3)),
        event(100, T.FAILED, 1, 0, signal.SIGKILL),
        event(500, T.FAILED, 2, 0, signal.SIGKILL),
        event(800, T.JOINED, 1, 1),
        event(900, T.JOINED, 2, 1),
        event(900, T.WAITED, 0, 0, 800 * MS),
        *(event(1000, T.DONE, rank) for rank in range(3)),
    ]
    assert uses_of(events, 2) == {"STEPS": 200, "RESTART": 800}
    assert uses_of(events, 1) == {"STEPS": 300, "RESTART": 700}


def test_ranks_wait_to_the_end_for_one_that_never_comes_back() -> None:
    events = [
        *(event(0, T.JOINED, rank) for rank in range(2)),
        event(100, T.FAILED, 1, 0, signal.SIGKILL),
        event(1000, T.STARTED, 1, 1),
    ]
    assert uses_of(events, 0) == {"STEPS": 100, "RESTART": 900}


def test_a_restart_without_a_snapshot_replays_everything() -> None:
    events = [e for e in one_failure() if e.type is not T.RESTORED]
    assert uses_of(events, 1) == {"START": 2500, "STEPS": 4580, "RESTART": 2320, "REPLAY": 600}


def test_replay_and_restart_at_once_is_a_restart() -> None:
    events = [
        *(event(0, T.JOINED, rank) for rank in range(3)),
        event(100, T.FAILED, 1, 0, 9),
        event(200, T.RESTORED, 1, 1),
        event(250, T.FAILED, 2, 0, 9),
        event(400, T.JOINED, 1, 1),
        event(600, T.JOINED, 2, 1),
        event(600, T.WAITED, 0, 0, 500 * MS),
    ]
    assert uses_of(events, 0) == {"STEPS": 100, "RESTART": 100 + 350, "REPLAY": 50}


def test_a_checkpoint_costs_time_only_when_the_training_is_over() -> None:
    events = [
        event(0, T.JOINED, 0),
        event(100, T.CHECKPOINT, 0, 0, 7),
        event(300, T.CHECKPOINTED, 0, 0, 7),
        event(1000, T.DONE, 0),
        event(900, T.CHECKPOINT, 0, 0, 9),
        event(1400, T.CHECKPOINTED, 0, 0, 9),
        event(1500, T.SHARE, 0, 0, 9),
    ]
    assert uses_of(events, 0) == {"STEPS": 1000, "CHECKPOINTS": 400, "END": 100}


def test_sums_of_which_no_moment_is_known_are_taken_from_useful_steps() -> None:
    stalls = {0: {Use.SNAPSHOTS: 600 * MS}, 1: {Use.SNAPSHOTS: 99999 * MS}}
    first, second, third = account(one_failure(), stalls_ns=stalls).ranks
    assert spent(first)["SNAPSHOTS"] == 600
    assert spent(first)["STEPS"] == 4000
    assert (spent(second)["SNAPSHOTS"], "STEPS" in spent(second)) == (4580, False)
    assert "SNAPSHOTS" not in spent(third)


def test_waits_for_slower_ranks_are_apart_and_those_for_dead_ones_not_counted_twice() -> None:
    plain = account(one_failure()).ranks[0]
    waited = sum(plain.ns(use) for use in (Use.WAITING, Use.DETECTION, Use.RESTART, Use.REPLAY))
    assert waited > 0
    for more, expected in ((700 * MS, 700), (-100 * MS, 0)):
        stalls = {0: {Use.SLOWER: waited + more}}
        own = account(one_failure(), stalls_ns=stalls).ranks[0]
        assert spent(own).get("SLOWER", 0) == expected
        assert own.ns(Use.STEPS) == plain.ns(Use.STEPS) - expected * MS
        assert own.ns(Use.RESTART) == plain.ns(Use.RESTART)


def test_a_report_knows_for_how_long_ranks_waited_for_slower_ones() -> None:
    ranks = [{"rank": rank, "times": {"wait_ns": rank * 10**12}} for rank in range(2)]
    told = cost_table.account_of(Report({"job": "j", "ranks": ranks}, one_failure()))
    assert "SLOWER" not in spent(told.ranks[0]) and "STEPS" in spent(told.ranks[0])
    assert spent(told.ranks[1])["SLOWER"] > 0 and "STEPS" not in spent(told.ranks[1])


def test_the_start_of_hvdft_run_counts_if_it_is_known() -> None:
    found = account(one_failure(), begun_ns=-500 * MS)
    assert [spent(own)["START"] for own in found.ranks] == [3000] * 3
    assert account(one_failure(), begun_ns=500 * MS) == account(one_failure())
    told = cost_table.account_of(Report({"job": "j", "begun_ns": -500 * MS}, one_failure()))
    assert told == found


def test_events_that_were_lost_have_no_time() -> None:
    later = [Event(e.time_ns + 10**12, e.type, e.rank, e.incarnation, e.detail)
             for e in one_failure()]  # fmt: skip
    assert account([event(0, T.LOST, 0), *later]) == account(later)


def test_a_run_without_events_has_no_time() -> None:
    found = account([])
    assert (found.ranks, found.share(Use.STEPS), found.seconds(Use.STEPS)) == ([], 0.0, 0.0)
    assert cost_table.accounts_table(found) is None


# ------------------------------------------------------------------ checkpoints alone


def two_outages(*more: Event) -> tuple[list[Event], Accounts]:
    """All ranks run from second 10 on; rank 0 is away from 110 to 120 and from 150 to 170."""
    events = [
        *(event(0, T.STARTED, rank) for rank in range(2)),
        event(4000, T.JOINED, 0),
        event(10_000, T.JOINED, 1),
        event(110_000, T.FAILED, 0, 0, 9),
        event(120_000, T.JOINED, 0, 1),
        event(150_000, T.FAILED, 0, 1, 9),
        event(170_000, T.JOINED, 0, 2),
        *(event(210_000, T.DONE, rank) for rank in range(2)),
        *more,
    ]
    return events, account(events)


def test_without_checkpoints_the_model_assumes_one_after_each_interval() -> None:
    events, accounts = two_outages()
    other = checkpoints_alone(events, accounts, steps=340, interval_seconds=60)
    assert other is not None
    assert other.restart_seconds == 10
    assert other.redone_seconds == [40, 10]  # 100 and 130 s of training at 60, 120
    assert other.seconds == 2 * 10 + 50
    assert other.steps_per_second == 2
    assert other.steps_redone == 100


def test_the_job_s_own_checkpoints_count_once_they_are_complete() -> None:
    events, accounts = two_outages(
        event(60_000, T.CHECKPOINT, 0, 0, 5),
        event(70_000, T.CHECKPOINTED, 0, 0, 5),
        event(105_000, T.CHECKPOINT, 0, 0, 6),
        event(115_000, T.CHECKPOINTED, 0, 0, 6),
        event(140_000, T.CHECKPOINT, 0, 0, 7),  # is never complete
    )
    other = checkpoints_alone(events, accounts, interval_seconds=1)
    assert other is not None
    assert (other.checkpoints, other.steps_redone) == (2, None)
    assert other.redone_seconds == [50, 95 - 60]


def test_all_work_is_redone_before_the_first_own_checkpoint() -> None:
    events, accounts = two_outages(
        event(180_000, T.CHECKPOINT, 0, 0, 5), event(190_000, T.CHECKPOINTED, 0, 0, 5)
    )
    other = checkpoints_alone(events, accounts, interval_seconds=1)
    assert other is not None
    assert other.redone_seconds == [100, 130]


def test_there_is_no_comparison_without_an_outage_or_a_whole_start() -> None:
    quiet = [e for e in one_failure() if e.rank != 1]
    assert checkpoints_alone(quiet, account(quiet)) is None
    early = [e for e in one_failure() if not (e.rank == 0 and e.type is T.JOINED)]
    assert checkpoints_alone(early, account(early)) is None


# ------------------------------------------------------------------ tables


def shown(table: Table | None) -> list[list[str]]:
    """Returns the header and the rows, as they are without a terminal's width."""
    assert table is not None
    Console(file=io.StringIO(), width=160).print(table)
    columns = [[str(column.header), *map(str, column.cells)] for column in table.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def test_the_tables_say_where_the_time_went_and_what_it_would_have_been() -> None:
    ranks = [
        {"rank": rank, "step": 90, "snapshots": {"count": 3, "stall_ns": 200 * MS}}
        for rank in range(3)
    ]
    report = Report({"job": "j", "ranks": ranks}, one_failure())
    accounts = cost_table.account_of(report)
    rows = shown(cost_table.accounts_table(accounts))
    assert rows[0] == ["rank", "useful steps", "waiting", "snapshots", "restart", "replay",
                       "start-up"]  # fmt: skip
    assert rows[2] == ["1", "43.8", "0.0", "2.0", "28.2", "1.0", "25.0"]
    assert rows[-2] == ["all", "43.9", "0.1", "2.0", "28.0", "1.0", "25.0"]
    assert rows[-1] == ["seconds", "4.39", "0.01", "0.20", "2.80", "0.10", "2.50"]
    other = cost_table.alternative_of(report, accounts)
    rows = shown(cost_table.cost_table(accounts, other))
    assert rows[1:] == [
        ["times that ranks were away", "1", "1"],
        ["until a death was noticed", "0.00", "0.00"],
        ["restart", "2.80", "1 x 2.50"],
        ["work done again", "0.10", "2.50"],
        ["steps that all ranks do again", "0", "49"],
        ["snapshots, checkpoints", "0.20", "not counted"],
        ["together", "3.10", "5.00"],
    ]
    assert "every 600 s" in cost_table.model_line(other)
    assert "2.50 s" in cost_table.model_line(other)
    assert "43.9%" in cost_table.goodput_line(accounts)


def test_there_is_no_table_of_costs_if_nobody_died() -> None:
    assert (
        cost_table.cost_table(account([event(0, T.JOINED, 0), event(5, T.DONE, 0)]), None) is None
    )
