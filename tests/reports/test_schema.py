"""Reports are as their schema says, and the schema knows every kind of line."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from synthetic import one_failure

from hvd_ft.agent.report_writer import Journal
from hvd_ft.errors import HvdFtError
from hvd_ft.job.report_lines import NOTES, SCHEMA
from hvd_ft.native.types import (
    Divergence,
    Event,
    EventType,
    Memory,
    Snapshots,
    State,
    Status,
    Times,
)
from hvd_ft.reports.report import read_report

FILE = ROOT / "hvd_ft/reports/report.schema.json"
TEXT = json.loads(FILE.read_text())
VALIDATOR = Draft202012Validator(TEXT)
NOTE = {"time_ns": 5, "rank": 1, "incarnation": 0}
SLOW = {**NOTE, "type": "SLOW", "text": "words", "ranks": [1], "host": "n1", "ended": False}
SLOW |= {"late": 0.8, "seconds": 20.5, "wait": 0.2, "step_seconds": None, "causes": ["words"]}
OPS = {**NOTE, "type": "OPS", "ops": [[7, 0, 3, 4, 9], [8, 2, None, None, 7]]}
REPLACED = {**NOTE, "type": "REPLACED", "ranks": [1], "host": "n1", "by": "n3", "epoch": 1}


class Observer:
    """A job in which everything happens that a report can have."""

    size, limit_bytes, log_length, log_records = 2, 100, 7, 3

    def __init__(self, events: list[Event]) -> None:
        self.events = events

    def report(self, start: int) -> list[Event]:
        return self.events[start:]

    def status(self, rank: int) -> Status:
        return Status(State.DONE, rank, 0, 40, 90, 0)

    def divergence(self, number: int) -> Divergence | None:
        return Divergence("w", 30, (0, 2), 1, 20) if number % 2 else None

    def memory(self, first_rank: int, *, most: bool = False) -> Memory | None:
        return Memory(14, 5, 2, 2, 5, 3, 1, 0, 3, 1, 104) if first_rank == 0 else None

    def snapshots(self, rank: int) -> Snapshots:
        return Snapshots(count=rank)

    def times(self, rank: int) -> Times:
        return Times(rounds=rank)


def written(path: Path, events: list[Event], error: str | None = None) -> list[dict[str, Any]]:
    """Has the writer of reports write one."""
    observer: Any = Observer(events)
    facts: Mapping[str, Any] = {"command": ["a"], "hosts": ["n0", "n0"], "ablated": "network"}
    journal = Journal(str(path), observer, "j1", generation=0, **facts)
    journal.follow()
    for kind in ("CAUSE", "STACKS"):
        journal.note({**NOTE, "type": kind, "text": "words"})
    journal.note(REPLACED)
    journal.note(SLOW)
    journal.note(OPS)
    journal.publish(0, error)
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(TEXT)


@pytest.mark.parametrize("error", [None, "why"])
def test_what_is_written_is_as_the_schema_says(tmp_path: Path, error: str | None) -> None:
    every = [Event(i, kind, 0, 1, i) for i, kind in enumerate(EventType)]
    last = Event(99, EventType.DIVERGED, 1, 0, (1 << 64) - 1)
    lines = written(tmp_path / "r.jsonl", [*every, last], error)
    for line in lines:
        VALIDATOR.validate(line)
    assert lines[0]["schema"] == SCHEMA
    assert len(lines) == 1 + len(every) + 1 + 5 + 1


@given(st.lists(st.sampled_from(one_failure())))
def test_events_in_any_order_are(events: list[Event]) -> None:
    for event in events:
        VALIDATOR.validate({**asdict(event), "type": event.type.name})


def test_the_schema_knows_every_kind_of_line_and_this_version() -> None:
    kinds = [kind["const"] for kind in TEXT["$defs"]["event"]["properties"]["type"]["oneOf"]]
    assert kinds == [kind.name for kind in EventType], "describe the new event there"
    of_text = TEXT["$defs"]["text"]["properties"]["type"]["enum"]
    assert {*of_text, "REPLACED", "SLOW", "OPS", "RING"} == {*NOTES}, "describe the new note there"
    assert TEXT["$defs"]["start"]["properties"]["schema"]["const"] == SCHEMA
    assert TEXT["$id"].endswith(f":{SCHEMA}")
    states = TEXT["$defs"]["end"]["properties"]["ranks"]["items"]["properties"]["state"]["enum"]
    assert states == [state.name for state in State]


@pytest.mark.parametrize(
    "line",
    [
        [],
        {},
        {"job": 7},
        {"schema": SCHEMA + 1, "job": "j"},
        {**NOTE, "type": "NEVER", "detail": 0},
        {**NOTE, "type": "DONE"},
        {**NOTE, "type": "DONE", "detail": -1},
        {**NOTE, "type": "DONE", "detail": "0"},
        {**NOTE, "type": "CAUSE"},
        {**REPLACED, "ranks": 1},
        {**OPS, "ops": [[7, 0, 3, 4]]},
        {**OPS, "ops": [[7, None, 3, 4, 9]]},
        {"exit_code": None},
        {"exit_code": 0, "ranks": [{"rank": 0}]},
        {"exit_code": 0, "nodes": [{"first_rank": 0}]},
        {"exit_code": 0, "error": 7},
    ],
)
def test_other_lines_are_not(line: object) -> None:
    assert not VALIDATOR.is_valid(line)


def test_reports_of_version_0_are_read_and_their_lines_are_as_the_schema_says(
    tmp_path: Path,
) -> None:
    first, *rest = written(tmp_path / "r.jsonl", one_failure())
    del first["schema"]
    path = tmp_path / "old.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in [first, *rest]))
    assert read_report(path).events == read_report(tmp_path / "r.jsonl").events
    VALIDATOR.validate(first)


def test_a_real_report_of_version_0_is_read_and_is_as_the_schema_says() -> None:
    path = Path(__file__).with_name("version-0.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        VALIDATOR.validate(line)
    found = read_report(path)
    assert "schema" not in lines[0]
    assert found.finished
    assert [line["time_ns"] for line in lines[1:-1]] == [event.time_ns for event in found.events]


def test_a_report_of_a_newer_version_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "new.jsonl"
    path.write_text(f'{{"schema": {SCHEMA + 1}, "job": "j", "version": "9.1"}}\n')
    with pytest.raises(HvdFtError) as refused:
        read_report(path)
    assert str(refused.value) == (
        f"{path} is a report of version {SCHEMA + 1}, written by hvd_ft 9.1; this one reads "
        f"versions up to {SCHEMA}: use a newer one"
    )
