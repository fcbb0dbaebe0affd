"""Single ops of a report are spans of its trace that do not overlap on a lane."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import event
from test_trace import check, shown

from hvd_ft.errors import HvdFtError
from hvd_ft.native.types import EventType
from hvd_ft.reports.facts import OpFacts, OpsFacts
from hvd_ft.reports.op_spans import op_spans
from hvd_ft.reports.report import Report, read_report
from hvd_ft.reports.trace import OPS, RING, trace_of

MS = 1_000_000
TIMES = st.integers(0, 9)
LINES = st.lists(
    st.builds(
        OpsFacts,
        time_ns=st.integers(-5, 30),
        rank=st.integers(0, 2),
        incarnation=st.integers(0, 1),
        ops=st.lists(
            st.builds(
                OpFacts, st.integers(0, 20), TIMES, st.none() | TIMES, st.none() | TIMES, TIMES
            ),
            max_size=5,
        ),
    ),
    max_size=6,
)
STARTED = [event(0, EventType.STARTED, rank, 0) for rank in range(2)]


def ops(rank: int, *parts: tuple[int, int, int | None, int | None, int]) -> OpsFacts:
    """A line with times in ms."""
    found = [
        OpFacts(op, *(None if time is None else time * MS for time in times))  # type: ignore[arg-type]
        for op, *times in parts
    ]
    return OpsFacts(time_ns=10 * MS, rank=rank, incarnation=0, ops=found)


def test_an_op_has_a_wait_and_what_the_rank_then_did() -> None:
    lines = [ops(0, (7, 0, 4, 1, 3), (8, 5, None, None, 2)), ops(1, (7, 0, 0, 3, 3))]
    trace = trace_of(Report({"job": "j"}, STARTED, ops=lines))
    check(trace)
    assert shown(trace, 1, OPS) == [
        ("wait for op 7", 6, 10),
        ("op 7: contribute", 10, 11),
        ("op 7: result", 11, 13),
        ("op 8", 15, 17),
    ]
    assert shown(trace, 2, OPS)[0] == ("wait for op 7", 10, 10)
    args = [e["args"]["op"] for e in trace["traceEvents"] if e["tid"] == OPS and e["ph"] == "B"]
    assert sorted(args) == [7, 7, 7, 7, 7, 7, 8]


def test_ops_that_overlap_are_on_lanes_of_their_own() -> None:
    lines = [ops(0, (1, 0, 2, 1, 5), (2, 1, 1, 1, 6), (3, 8, 2, 1, 3))]
    found = op_spans(lines, 0)
    assert [(span.lane, span.args["op"]) for span in found[::3]] == [(0, 1), (1, 2), (0, 3)]


def test_an_op_that_two_lines_have_is_shown_once() -> None:
    line = ops(0, (1, 0, 2, 1, 5))
    assert len(op_spans([line, line], 0)) == 3


def test_the_ring_has_its_phases_on_a_thread_of_its_own() -> None:
    ring = [ops(0, (7, 0, None, 1, 3), (8, 3, None, None, 2)), ops(1, (7, 0, None, 2, 3))]
    trace = trace_of(Report({"job": "j"}, STARTED, ops=[ops(0, (7, 0, 4, 1, 3))], ring=ring))
    check(trace)
    assert shown(trace, 1, RING) == [
        ("op 7: reduce-scatter", 10, 11),
        ("op 7: all-gather", 11, 13),
        ("op 8", 13, 15),
    ]
    assert shown(trace, 2, RING)[0] == ("op 7: reduce-scatter", 10, 12)
    names = {
        (e["pid"], e["tid"]): e["args"]["name"] for e in trace["traceEvents"] if e["ph"] == "M"
    }
    assert names[1, RING] == names[2, RING] == "ring of its node"
    assert names[1, OPS] == "ops" and (2, OPS) not in names


@given(LINES, LINES)
def test_any_ops_make_a_trace_by_the_rules(lines: list[OpsFacts], ring: list[OpsFacts]) -> None:
    check(trace_of(Report({"job": "j"}, STARTED, ops=lines, ring=ring)))


def test_a_report_has_its_ops_and_wrong_ones_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    line = {"type": "OPS", "time_ns": 5, "rank": 1, "incarnation": 0}
    path.write_text(f'{{"job": "j"}}\n{json.dumps({**line, "ops": [[3, 0, None, 1, 2]]})}\n')
    assert read_report(path).ops == [OpsFacts(5, 1, 0, [OpFacts(3, 0, None, 1, 2)])]
    assert not read_report(path).events and not read_report(path).ring
    path.write_text(
        f'{{"job": "j"}}\n{json.dumps({**line, "type": "RING", "ops": [[3, 0, None, 1, 2]]})}\n'
    )
    assert [each.rank for each in read_report(path).ring] == [1] and not read_report(path).ops
    assert not read_report(path).events
    for wrong in ([[3, 0, 1]], [[3, None, 1, 1, 2]], [[3, -1, 1, 1, 2]], [3], None):
        path.write_text(f'{{"job": "j"}}\n{json.dumps({**line, "ops": wrong})}\n')
        with pytest.raises(HvdFtError, match="line 2 is not a report's"):
            read_report(path)
