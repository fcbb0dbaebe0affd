"""The trace of a report keeps the rules of Chrome's format, whatever the events are."""

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from synthetic import event, one_failure

from hvd_ft import cli
from hvd_ft.native.types import Event, EventType
from hvd_ft.reports.facts import ReplacementFacts
from hvd_ft.reports.report import Report, read_report
from hvd_ft.reports.trace import AGENT, JOB, RECOVERY, SNAPSHOTS, WORKER, trace_of

T = EventType
REAL = Path(__file__).with_name("version-0.jsonl")
EVENTS = st.lists(
    st.builds(
        Event,
        time_ns=st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 40),
        type=st.sampled_from(EventType),
        rank=st.integers(0, 3),
        incarnation=st.integers(0, 2),
        detail=st.integers(0, 9),
    ),
    max_size=40,
)


def check(trace: dict[str, Any]) -> None:
    """Asserts the rules of the format."""
    json.loads(json.dumps(trace, allow_nan=False))
    named: set[tuple[str, int, int]] = set()
    open_: dict[tuple[int, int], list[str]] = {}
    at: dict[tuple[int, int], float] = {}
    begun: dict[tuple[str, int], float] = {}
    for entry in trace["traceEvents"]:
        pid, tid, kind = entry["pid"], entry["tid"], entry["ph"]
        whose = (pid, tid)
        if kind == "M":
            assert entry["name"] in ("process_name", "thread_name")
            assert entry["args"]["name"]
            named.add((entry["name"], pid, tid if entry["name"] == "thread_name" else 0))
            continue
        assert ("process_name", pid, 0) in named, "a process has no name"
        assert ("thread_name", pid, tid) in named, "a thread has no name"
        assert entry["ts"] >= at.get(whose, 0.0), "time goes back"
        at[whose] = entry["ts"]
        match kind:
            case "B":
                open_.setdefault(whose, []).append(entry["name"])
                assert len(open_[whose]) == 1, "these do not nest"
            case "E":
                assert open_[whose].pop() == entry["name"]
            case "b":
                assert (entry["cat"], entry["id"]) not in begun
                begun[entry["cat"], entry["id"]] = entry["ts"]
            case "e":
                assert begun.pop((entry["cat"], entry["id"])) <= entry["ts"]
            case _:
                assert (kind, entry["s"]) == ("i", "t")
    assert not any(open_.values()), "a begin has no end"
    assert not begun


def shown(trace: dict[str, Any], pid: int, tid: int) -> list[tuple[str, float, float]]:
    """Returns the spans of a thread: name, begin and end in ms."""
    of = [e for e in trace["traceEvents"] if (e["pid"], e["tid"]) == (pid, tid)]
    ends = [e["ts"] / 1000 for e in of if e["ph"] in "Ee"]
    starts = [e for e in of if e["ph"] in "Bb"]
    return [(e["name"], e["ts"] / 1000, end) for e, end in zip(starts, ends, strict=True)]


@given(EVENTS)
def test_any_events_make_a_trace_by_the_rules(events: list[Event]) -> None:
    replaced = ReplacementFacts(time_ns=-5, host="n1", by="n2", ranks=[1], epoch=1)
    in_order = sorted(events, key=lambda event: event.time_ns)
    facts = {"job": "j", "hosts": ["n0", "n0", "n1"]}
    check(trace_of(Report(facts, in_order, replacements=[replaced])))


def test_a_real_report_makes_a_trace_by_the_rules() -> None:
    trace = trace_of(read_report(REAL))
    check(trace)
    assert [name for name, *_ in shown(trace, 3, RECOVERY)] == [
        *("process start", "import", "restore", "replay"),
    ]
    assert len(shown(trace, JOB, 2)) == 7


def test_what_ranks_did_is_on_their_threads() -> None:
    events = [*one_failure(), event(3000, T.SNAPSHOT, 0, 0, 12), event(4000, T.ADOPTED, 0, 0, 1)]
    events.sort(key=lambda event: event.time_ns)
    trace = trace_of(Report({"job": "j7", "hosts": ["n0", "n1", "n1"]}, events))
    check(trace)
    assert shown(trace, 2, WORKER) == [
        ("start-up", 0, 2500),
        ("useful steps", 2500, 5000),
        ("restart", 5000, 7820),
        ("replay", 7820, 7920),
        ("useful steps", 7920, 10000),
    ]
    assert shown(trace, 1, WORKER)[2:5] == [
        ("restart", 5030, 7820),
        ("replay", 7820, 7920),
        ("waiting", 7920, 7930),
    ]
    assert shown(trace, 2, RECOVERY) == [
        ("process start", 5000, 5020),
        ("import", 5020, 7320),
        ("restore", 7320, 7820),
        ("replay", 7820, 7920),
    ]
    assert shown(trace, 1, AGENT) == [
        ("agent of generation 0", 0, 4000),
        ("agent of generation 1", 4000, 10000),
    ]
    assert shown(trace, JOB, 1) == [("ranks away", 5000, 7920)]
    instants = [e for e in trace["traceEvents"] if e["ph"] == "i" and e["tid"] == SNAPSHOTS]
    assert [(e["pid"], e["ts"], e["args"]) for e in instants] == [
        (1, 3_000_000, {"incarnation": 0, "op": 12})
    ]
    names = {e["pid"]: e["args"]["name"] for e in trace["traceEvents"]
             if e["name"] == "process_name"}  # fmt: skip
    assert names == {0: "job j7", 1: "rank 0 on n0", 2: "rank 1 on n1", 3: "rank 2 on n1"}


def test_without_a_snapshot_everything_after_the_import_is_replay() -> None:
    events = [e for e in one_failure() if e.type is not T.RESTORED]
    trace = trace_of(Report({"job": "j"}, events))
    assert shown(trace, 2, RECOVERY)[2:] == [("replay", 7320, 7920)]


def test_recoveries_of_a_rank_do_not_overlap_though_events_do() -> None:
    """One is told to be back after it died again, as clocks of hosts differ."""
    events = [
        event(100, T.FAILED, 0, 0, 9),
        event(110, T.STARTED, 0, 1),
        event(120, T.ATTACHED, 0, 1),
        event(130, T.RESTORED, 0, 1),
        event(200, T.FAILED, 0, 1, 9),
        event(210, T.STARTED, 0, 2),
        event(300, T.JOINED, 0, 1),
    ]
    trace = trace_of(Report({"job": "j"}, events))
    check(trace)
    assert shown(trace, 1, RECOVERY)[-1] == ("replay", 30, 200)


def share(position: int) -> int:
    return position << 38 | 1 << 32 | 7


def test_the_trace_says_how_well_clocks_are_aligned() -> None:
    events = [
        event(1000, T.CHECKPOINT, 0, 0, 5),
        event(1030, T.SHARE, 1, 0, share(5)),
        event(2000, T.CHECKPOINT, 0, 0, 9),
        event(2001, T.SHARE, 1, 0, share(5)),  # of the round before
        event(2020, T.SHARE, 1, 0, share(9)),
        event(2022, T.SHARE, 0, 0, share(9)),
    ]
    report = Report({"job": "j", "hosts": ["n0", "n1", "n2"]}, events)
    clocks = trace_of(report)["otherData"]["clocks"]
    assert clocks["clock"] == "CLOCK_MONOTONIC of n0"
    assert clocks["late_by_at_most_us"] == {"n0": 0.0, "n1": 20_000.0, "n2": None}


def test_the_trace_is_beside_the_report(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(REAL.read_text())
    assert cli.main(["report", str(path), "--trace"]) == 0
    check(json.loads((tmp_path / "run.trace.json").read_text()))
