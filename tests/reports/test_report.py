import io
import json
import signal
from dataclasses import asdict, fields
from pathlib import Path

import pytest
from rich.console import Console
from synthetic import KILLED_NS, MS, event, one_failure

from hvd_ft.errors import HvdFtError
from hvd_ft.native.types import Divergence, Event, EventType, Memory, State
from hvd_ft.reports import report
from hvd_ft.reports.memory_table import memory_table


def test_a_failure_is_taken_apart() -> None:
    [failure] = report.failures(one_failure(), {(1, 0): KILLED_NS})
    assert (failure.rank, failure.incarnation, failure.cause) == (1, 0, "signal 9")
    assert failure.detect == pytest.approx(0.010)
    assert failure.process_start == pytest.approx(0.020)
    assert failure.script_start == pytest.approx(2.3)
    assert failure.restore == pytest.approx(0.5)
    assert failure.replay == pytest.approx(0.1)
    assert failure.total == pytest.approx(2.93)
    assert failure.replayed_ops == 3
    parts = [failure.detect, failure.process_start, failure.script_start]
    parts += [failure.restore, failure.replay]
    assert sum(part or 0.0 for part in parts) == pytest.approx(failure.total)


def test_the_others_waits_are_charged_to_the_failure() -> None:
    [failure] = report.failures(one_failure())
    assert failure.waits == pytest.approx({0: 2.9, 2: 2.905})


def test_without_the_time_of_the_kill_detection_is_unknown() -> None:
    [failure] = report.failures(one_failure())
    assert failure.detect is None
    assert failure.total == pytest.approx(2.92)


def test_a_rank_that_never_came_back_has_no_total() -> None:
    events = [e for e in one_failure() if not (e.rank == 1 and e.incarnation == 1)]
    [failure] = report.failures(events)
    assert failure.process_start is None
    assert failure.total is None


def test_without_a_snapshot_everything_after_attaching_is_replay() -> None:
    events = [e for e in one_failure() if e.type is not EventType.RESTORED]
    [failure] = report.failures(events)
    assert failure.restore is None
    assert failure.replay == pytest.approx(0.6)


def test_a_second_death_of_a_rank_is_a_failure_of_its_own() -> None:
    events = [
        event(1000, EventType.FAILED, 0, 0, signal.SIGKILL),
        event(1010, EventType.STARTED, 0, 1),
        event(2000, EventType.FAILED, 0, 1, 3 << 8),
        event(2010, EventType.STARTED, 0, 2),
        event(3000, EventType.JOINED, 0, 2),
        event(3010, EventType.WAITED, 1, 0, 500 * MS),
    ]
    first, second = report.failures(events)
    assert (first.total, second.total) == (None, pytest.approx(1.0))
    assert (first.cause, second.cause) == ("signal 9", "exit code 3")
    assert (first.waits, second.waits) == ({}, pytest.approx({1: 0.5}))


def test_a_wait_belongs_to_the_failure_that_it_overlaps_longest() -> None:
    events = [
        event(1000, EventType.FAILED, 1, 0, signal.SIGKILL),
        event(2000, EventType.JOINED, 1, 1),
        event(2001, EventType.WAITED, 0, 0, 1000 * MS),
        event(5000, EventType.FAILED, 2, 0, signal.SIGKILL),
        event(8000, EventType.JOINED, 2, 1),
        event(8001, EventType.WAITED, 0, 0, 2000 * MS),
    ]
    first, second = report.failures(events)
    assert first.waits == pytest.approx({0: 1.0})
    assert second.waits == pytest.approx({0: 2.0})


def test_intervals_follow_each_other_without_a_gap() -> None:
    for rank in range(3):
        own = [i for i in report.intervals(one_failure()) if i.rank == rank]
        assert own[0].start_ns == 0
        assert own[-1].end_ns == 10000 * MS
        assert [i.end_ns for i in own[:-1]] == [i.start_ns for i in own[1:]]


def test_intervals_of_the_rank_that_died_and_of_one_that_waited() -> None:
    found = report.intervals(one_failure())
    died = [(i.state, i.end_ns // MS) for i in found if i.rank == 1]
    assert died == [
        (State.STARTING, 2500),
        (State.RUNNING, 5000),
        (State.RESTARTING, 7320),
        (State.REPLAYING, 7920),
        (State.RUNNING, 10000),
    ]
    waited = [(i.state, i.start_ns // MS, i.end_ns // MS) for i in found if i.rank == 0]
    assert waited == [
        (State.STARTING, 0, 2500),
        (State.RUNNING, 2500, 5030),
        (State.WAITING, 5030, 7930),
        (State.RUNNING, 7930, 10000),
    ]


def test_a_run_without_events_has_no_facts() -> None:
    assert report.failures([]) == []
    assert report.intervals([]) == []


@pytest.mark.parametrize(
    ("final", "executed", "lost"),
    [
        ([300, 300], [300], 0),
        ([300, 298], [300], 2),  # the last two are missing on one rank
        ([300, 300], [310], 10),  # a survivor rolled back ten
        ([299, 300], [304], 5),
    ],
)
def test_steps_lost(final: list[int], executed: list[int], lost: int) -> None:
    assert report.steps_lost(300, final, executed) == lost


EVENT = '{"time_ns": 1, "type": "DONE", "rank": 0, "incarnation": 0, "detail": 0}\n'
START = {"job": "j1", "size": 3}
END = {"exit_code": 0, "ranks": []}


def most(shared_mib: float, total_mib: int) -> dict[str, int]:
    names = [field.name for field in fields(Memory)]
    return {
        **dict.fromkeys(names, 0),
        "shared_state": int(shared_mib * 2**20),
        "total": total_mib << 20,
    }


def lines_of(events: list[Event]) -> list[str]:
    fields: list[dict[str, object]] = [START]
    fields += [{**asdict(e), "type": e.type.name} for e in events]
    return [json.dumps(each) + "\n" for each in [*fields, END]]


def test_a_report_is_read_back(tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_text("".join(lines_of(one_failure())))
    found = report.read_report(tmp_path / "run.jsonl")
    assert found.facts == {**START, **END}
    assert found.finished
    assert found.events == sorted(one_failure(), key=lambda e: e.time_ns)


@pytest.mark.parametrize("cut_off", ["", '{"time_ns": 1, "ty', "{"])
def test_an_unfinished_report_is_read_up_to_where_it_ends(tmp_path: Path, cut_off: str) -> None:
    lines = lines_of(one_failure())[:4]
    (tmp_path / "run.jsonl").write_text("".join(lines) + cut_off)
    found = report.read_report(tmp_path / "run.jsonl")
    assert not found.finished
    assert found.facts == START
    assert len(found.events) == 3


def test_what_a_later_generation_tells_anew_counts_once(tmp_path: Path) -> None:
    lines = lines_of(one_failure())
    (tmp_path / "run.jsonl").write_text("".join([*lines[:-1], *lines]))
    found = report.read_report(tmp_path / "run.jsonl")
    assert found.events == sorted(one_failure(), key=lambda e: e.time_ns)


def test_a_report_of_an_older_version_is_read(tmp_path: Path) -> None:
    lines = lines_of(one_failure())
    older = json.dumps({**START, **END}) + "\n"
    (tmp_path / "run.jsonl").write_text("".join([older, *lines[1:-1]]))
    found = report.read_report(tmp_path / "run.jsonl")
    assert (found.finished, len(found.events)) == (True, len(one_failure()))


def test_replaced_hosts_are_read_and_are_no_events(tmp_path: Path) -> None:
    note = {"type": "REPLACED", "time_ns": 5, "rank": 2, "host": "n1", "by": "n3", "epoch": 1}
    first, *rest = lines_of(one_failure())
    text = "".join([first, json.dumps({**note, "ranks": [2, 3]}) + "\n", *rest])
    (tmp_path / "run.jsonl").write_text(text)
    found = report.read_report(tmp_path / "run.jsonl")
    assert len(found.events) == len(one_failure())
    assert report.replacement_lines(found) == [
        "host n1 was lost; its ranks 2, 3 continued on n3 (epoch 1)"
    ]
    (tmp_path / "run.jsonl").write_text(first + json.dumps(note) + "\n")
    with pytest.raises(HvdFtError, match="line 2 is not a report's"):
        report.read_report(tmp_path / "run.jsonl")


def test_why_a_worker_was_killed_is_told_beside_its_failure(tmp_path: Path) -> None:
    note = {"type": "CAUSE", "time_ns": 5, "rank": 1, "incarnation": 0, "text": "lack of memory"}
    first, *rest = lines_of(one_failure())
    (tmp_path / "run.jsonl").write_text("".join([first, json.dumps(note) + "\n", *rest]))
    found = report.read_report(tmp_path / "run.jsonl")
    assert len(found.events) == len(one_failure())
    assert report.cause_lines(found) == ["rank 1 (incarnation 0): lack of memory"]
    for wrong in ({"rank": "1"}, {"text": 7}, {"incarnation": None}):
        (tmp_path / "run.jsonl").write_text(first + json.dumps({**note, **wrong}) + "\n")
        with pytest.raises(HvdFtError, match="line 2 is not a report's"):
            report.read_report(tmp_path / "run.jsonl")


def test_slow_ranks_are_told_with_when_it_was(tmp_path: Path) -> None:
    events = one_failure()
    found = {
        "ranks": [1],
        "host": "n0",
        "ended": False,
        "text": "rank 1 on n0 is slow",
        "late": 0.8,
    }
    found |= {"seconds": 20.5, "wait": 0.25, "step_seconds": None, "causes": []}
    at = min(event.time_ns for event in events) + 30 * 10**9
    note = {"type": "SLOW", "time_ns": at, "rank": 1, "incarnation": 0, **found}
    first, *rest = lines_of(events)
    (tmp_path / "run.jsonl").write_text("".join([first, json.dumps(note) + "\n", *rest]))
    read = report.read_report(tmp_path / "run.jsonl")
    assert len(read.events) == len(events)
    assert report.slow_lines(read) == ["after 30 s: rank 1 on n0 is slow"]
    for wrong in ({"ranks": 1}, {"text": 7}, {"late": "0.8"}, {"time_ns": None}):
        (tmp_path / "run.jsonl").write_text(first + json.dumps({**note, **wrong}) + "\n")
        with pytest.raises(HvdFtError, match="line 2 is not a report's"):
            report.read_report(tmp_path / "run.jsonl")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "true", "{}\n", '{"exit_code": 0}\n', EVENT])
def test_a_file_that_is_no_report_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.jsonl").write_text(text)
    with pytest.raises(HvdFtError, match=r"run\.jsonl, line 1 is not a report's"):
        report.read_report(tmp_path / "run.jsonl")


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        "{}",
        '{"type": "DONE"}',
        '{"time_ns": "1", "type": "DONE", "rank": 0, "incarnation": 0, "detail": 0}',
        '{"time_ns": 1, "type": "NEVER", "rank": 0, "incarnation": 0, "detail": 0}',
    ],
)
def test_a_line_that_is_no_event_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "run.jsonl").write_text('{"job": "j1"}\n' + line + "\n")
    with pytest.raises(HvdFtError, match="line 2 is not a report's"):
        report.read_report(tmp_path / "run.jsonl")


@pytest.mark.parametrize(
    "end",
    [
        {"ranks": [{"snapshots": {}}]},
        {"ranks": [{"rank": 0, "snapshots": {"count": 1, "training_ns": "1"}}]},
        {
            "ranks": [
                {"rank": 0, "snapshots": {"count": 1, "training_ns": 1, "stall_ns": 1 << 9999}}
            ]
        },
        {"nodes": [{"first_rank": 0, "most": {}}]},
        {"nodes": [{"most": most(1, 1)}]},
        {"nodes": [{"first_rank": 0, "most": most(1, 1)}], "fusion_threshold": "64 MiB"},
    ],
)
def test_facts_of_which_no_table_can_be_made_are_named(
    tmp_path: Path, end: dict[str, object]
) -> None:
    (tmp_path / "run.jsonl").write_text(f'{{"job": "j1"}}\n{json.dumps({**END, **end})}\n')
    with pytest.raises(HvdFtError, match="line 2 is not a report's"):
        report.read_report(tmp_path / "run.jsonl")


@pytest.mark.parametrize(
    "fields",
    [
        {"time_ns": 1 << 9999},
        {"type": "FAILED", "detail": 1 << 64},
        {"type": "FAILED", "detail": 127},
    ],
)
def test_an_event_that_no_table_could_show_is_named(
    tmp_path: Path, fields: dict[str, object]
) -> None:
    event = json.dumps({**json.loads(EVENT), **fields})
    (tmp_path / "run.jsonl").write_text(f'{{"job": "j1"}}\n{event}\n')
    with pytest.raises(HvdFtError, match="line 2 is not a report's"):
        report.read_report(tmp_path / "run.jsonl")


def test_a_report_that_is_not_there_or_not_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(HvdFtError, match="No such file"):
        report.read_report(tmp_path / "none.jsonl")
    (tmp_path / "run.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(HvdFtError, match="it is not text"):
        report.read_report(tmp_path / "run.jsonl")


def test_the_cost_of_snapshots() -> None:
    costs = {"count": 7, "steps": 40, "training_ns": 10**10, "stall_ns": 5 * 10**7, "copy_ns": 0}
    ranks = [{"rank": 0, "snapshots": costs}, {"rank": 1, "snapshots": {**costs, "count": 0}}]
    console = Console(file=io.StringIO(), width=80)
    table = report.snapshots_table(ranks)
    assert table is not None
    assert table.row_count == 1
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    *_, row, _ = console.file.getvalue().splitlines()
    assert row.replace("│", " ").split() == ["0", "7", "40", "0.50%", "0.00%"]
    assert report.snapshots_table([{"rank": 0}]) is None


def test_tables_show_the_numbers() -> None:
    console = Console(file=io.StringIO(), width=80)
    console.print(report.failures_table(report.failures(one_failure(), {(1, 0): KILLED_NS})))
    console.print(report.states_table(report.intervals(one_failure())))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    for part in ("signal 9", "0.010", "2.300", "2.930", "rank 2 waited", "2.905", "restarting"):
        assert part in text


def test_divergences_are_a_table() -> None:
    assert report.divergences_table([]) is None
    table = report.divergences_table(
        [Divergence("[w]/kernel:0", 30, (2,), 1, 20), Divergence("v", 40, (0, 1), 3, 0)]
    )
    console = Console(file=io.StringIO(), width=100)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    rows = [
        line.strip("│").split("│") for line in console.file.getvalue().splitlines() if "│" in line
    ]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["[w]/kernel:0", "1", "30", "20", "rank 2"],
        ["v", "3", "40", "-", "ranks 0 and 1"],
    ]


def test_the_memory_of_each_node() -> None:
    facts = {
        "fusion_threshold": 64 << 20,
        "nodes": [
            {"first_rank": 0, "most": most(1.25, 300)},
            {"first_rank": 2, "most": most(120, 400)},
        ],
        "ranks": [{"rank": rank, "step_bytes": mib << 20} for rank, mib in enumerate((3, 4, 0))],
    }
    console = Console(file=io.StringIO(), width=100)
    table = memory_table(facts)
    assert table is not None
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    *_, first, second, _ = console.file.getvalue().splitlines()
    zeros = ["0.0"] * 5
    assert first.replace("│", " ").split() == ["0-1", "1.2", *zeros, "300", "0.0", "135"]
    # A rank that has reduced nothing would have taken nothing.
    assert second.replace("│", " ").split() == ["2", "120", *zeros, "400", "0.0", "0.0"]


@pytest.mark.parametrize("facts", [{}, {"ranks": [{"rank": 0}], "used_bytes_peak": 7}])
def test_reports_without_memory_have_no_such_table(facts: dict[str, object]) -> None:
    assert memory_table(facts) is None
