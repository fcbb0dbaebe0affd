"""The report is written as the job goes, by agents of one generation after the other."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from conftest import Device
from synthetic import event, one_failure

from hvd_ft.agent.report_writer import Journal, fusion_threshold
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


class Observer:
    """The part of a job's observer that the report uses."""

    size = 2
    limit_bytes = 100
    log_length = 7
    log_records = 3

    def __init__(self) -> None:
        self.told: list[Event] = []

    def report(self, start: int) -> list[Event]:
        return self.told[start:]

    def status(self, rank: int) -> Status:
        return Status(State.DONE, rank, 0, 40, 90, 0)

    def divergence(self, number: int) -> Divergence | None:
        return {7: Divergence("w", 30, (0, 2), 1, 20)}.get(number)

    def memory(self, first_rank: int, *, most: bool = False) -> Memory | None:
        return Memory(14, 5, 2, 2, 5, 3, 1, 0, 3, 1, 104) if first_rank == 0 else None

    def snapshots(self, rank: int) -> Snapshots:
        return Snapshots(count=rank)

    def times(self, rank: int) -> Times:
        return Times(rounds=rank)


EVENTS = sorted(one_failure(), key=lambda event: event.time_ns)


class Written(Journal):
    """A journal of a job whose events come when the test says so."""

    def __init__(self, path: Path | str, job: str, generation: int) -> None:
        self.job: Any = Observer()
        command, hosts = ["python", "train.py"], ["n0", "n1"]
        super().__init__(
            str(path), self.job, job, command=command, hosts=hosts, generation=generation
        )

    def add(self, events: list[Event]) -> None:
        self.job.told += events
        self.follow()


def journal(path: Path | str, job: str = "j1", generation: int = 0) -> Written:
    return Written(path, job, generation)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_report_is_there_from_the_start_and_grows(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text("an earlier run's\n")
    written = journal(path)
    [begin] = read(path)
    assert (begin["job"], begin["size"], begin["hosts"]) == ("j1", 2, ["n0", "n1"])
    assert begin["command"] == ["python", "train.py"]
    written.add(EVENTS[:3])
    assert len(read(path)) == 4
    written.add(EVENTS[3:])
    assert read_report(path).events == EVENTS
    assert not read_report(path).finished
    assert written.publish(5, "why") == 5
    assert read_report(path).events == EVENTS
    facts = read_report(path).facts
    assert (facts["exit_code"], facts["error"], facts["used_bytes_peak"]) == (5, "why", 10)
    [node] = facts["nodes"]
    assert (node["first_rank"], node["memory"]["log"], node["most"]["total"]) == (0, 3, 14)
    assert facts["fusion_threshold"] == 128 << 20
    assert [rank["incarnation"] for rank in facts["ranks"]] == [0, 1]
    assert [rank["snapshots"]["count"] for rank in facts["ranks"]] == [0, 1]


@pytest.mark.parametrize(("job_code", "code"), [(0, 74), (3, 3)])
def test_a_full_disk_is_said_once_and_by_the_code_if_the_job_went_well(
    capsys: pytest.CaptureFixture[str], device: Device, job_code: int, code: int
) -> None:
    full = device("full")
    written = journal(full)
    written.add(EVENTS)  # the job continues
    said = capsys.readouterr().err
    assert said.startswith(f"hvdft: the report {full} could not be written (No space left on")
    assert said.count("\n") == 1
    assert written.publish(job_code, None) == code
    assert capsys.readouterr().err == ""


def test_the_begin_of_the_job_is_noted_if_it_is_known(tmp_path: Path) -> None:
    for begun_ns in (None, 17):
        observer: Any = Observer()
        of = {"command": ["a"], "hosts": ["n0", "n1"]}
        Journal(str(tmp_path / "r"), observer, "j1", **of, generation=0, begun_ns=begun_ns)
        assert read(tmp_path / "r")[0].get("begun_ns") == begun_ns


def continued(path: Path, events: list[Event], job: str = "j1") -> list[dict[str, Any]]:
    """Lets an agent of the next generation go on; it finds all events in the arena."""
    written = journal(path, job, generation=1)
    written.add(events)
    written.publish(0, None)
    return read(path)


@pytest.mark.parametrize("cut_off", ["", '{"time_ns": 12, "ty'])
def test_a_later_generation_goes_on_where_the_report_ends(tmp_path: Path, cut_off: str) -> None:
    path = tmp_path / "r.jsonl"
    journal(path).add(EVENTS[:5])
    lines = read(path)
    with path.open("a") as file:
        file.write(cut_off)
    # Of the first two the arena has kept nothing but that they were.
    lost = [Event(0, EVENTS[0].type, 0, 0, 0)] * 2
    found = continued(path, [*lost, *EVENTS[2:]])
    assert found[: len(lines)] == lines
    assert [line["time_ns"] for line in found[1:-1]] == [event.time_ns for event in EVENTS]
    assert read_report(path).finished


@pytest.mark.parametrize("cut_off", ["", '{"type": "STA'])
@pytest.mark.parametrize("ends", [[2, 4], [0, 3], [3, 3], [1, 2, 2, 5]])
def test_each_event_is_there_once_over_several_generations(
    tmp_path: Path, ends: list[int], cut_off: str
) -> None:
    """Each agent is killed while it writes; its followers find all events in the arena."""
    path = tmp_path / "r.jsonl"
    note = {"type": "STACKS", "time_ns": 1, "rank": 1, "incarnation": 0, "text": "at a.py:1"}
    for generation, end in enumerate([*ends, len(EVENTS)]):
        written = journal(path, generation=generation)
        if generation:
            written.job.told = EVENTS[: ends[generation - 1]]
            written.resume()
        written.add(EVENTS[len(written.job.told) : end])
        written.note(note)
        with path.open("a") as file:
            file.write(cut_off)
    if cut_off:
        path.write_text(path.read_text().removesuffix(cut_off))
    assert read_report(path).events == EVENTS
    kept = [line for line in read(path) if line.get("type") == "STACKS"]
    assert kept == [note] * (len(ends) + 1)
    assert sum("job" in line for line in read(path)) == 1


def test_what_agents_note_is_no_event_of_the_arena(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    written = journal(path)
    written.add(EVENTS[:2])
    written.note({"type": "STACKS", "rank": 1, "text": "File train.py"})
    found = continued(path, EVENTS)
    assert [line.get("time_ns") for line in found[1:4]] == [
        EVENTS[0].time_ns,
        EVENTS[1].time_ns,
        None,
    ]
    assert [line["time_ns"] for line in found[4:-1]] == [event.time_ns for event in EVENTS[2:]]


def test_a_later_generation_begins_another_jobs_report_anew(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    journal(path, "j1").add(EVENTS)
    found = continued(path, EVENTS[:2], "j2")
    assert found[0]["job"] == "j2"
    assert len(found) == 4


def test_a_new_arena_does_not_have_what_the_report_has(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    journal(path).add(EVENTS[:4])
    written = journal(path, generation=1)  # rank 0's host was replaced
    written.job.told += EVENTS[4:5]  # came before the journal was opened
    written.resume()
    written.add(EVENTS[5:])
    times = [line["time_ns"] for line in read(path)[1:]]
    assert times == [event.time_ns for event in (*EVENTS[:4], *EVENTS[5:])]


@pytest.mark.parametrize("text", [None, "", "{", '{"job": "j1"', "[]\n", "true\n"])
def test_a_later_generation_finds_no_report(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "r.jsonl"
    if text is not None:
        path.write_text(text)
    found = continued(path, EVENTS[:2])
    assert found[0]["job"] == "j1"
    assert len(found) == 4


def test_a_fifo_is_not_read_by_a_later_generation(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    journal(path).add(EVENTS[:1])
    # Unread data would be lost to the reader; and it gets everything again.
    written = journal(path, generation=1)
    written.add(EVENTS[:1])
    assert written.publish(0, None) == 0
    told = [json.loads(line) for line in os.read(reader, 1 << 16).splitlines()]
    os.close(reader)
    assert ["job" in line for line in told] == [True, False, True, False, False]


def test_a_divergence_is_written_with_its_names(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    written = journal(path)
    events = [event(number, EventType.DIVERGED, 0, 0, number) for number in (6, 7)]
    written.add(events)
    written.publish(0, None)
    told = read_report(path)
    assert told.events == events
    assert told.divergences == [Divergence("w", 30, (0, 2), 1, 20)]  # the other is overwritten


@pytest.mark.parametrize(
    ("text", "size"),
    [(None, 128 << 20), ("1048576", 1 << 20), (" 64MB", 64), ("0", 0), ("-1", 0), ("much", 0)],
)
def test_the_fusion_threshold_is_read_as_horovod_reads_it(text: str | None, size: int) -> None:
    env = {} if text is None else {"HOROVOD_FUSION_THRESHOLD": text}
    assert fusion_threshold(env) == size


def test_a_report_has_its_end_before_the_agents_wait_for_each_other(tmp_path: Path) -> None:
    """An agent that waits for a lost host is killed."""
    path = tmp_path / "run.jsonl"
    journal = Written(path, "j", 0)
    journal.add(EVENTS[:-1])
    journal.note_end(0, None)
    found = read_report(path)
    assert found.finished and found.facts["exit_code"] == 0 and found.events == EVENTS[:-1]
    journal.add(EVENTS[-1:])  # from another node
    assert journal.publish(3, "why") == 3
    found = read_report(path)
    assert (found.facts["exit_code"], found.facts["error"]) == (3, "why")
    assert found.events == EVENTS


def test_an_end_that_has_not_changed_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    journal = Written(path, "j", 0)
    journal.note_end(0, None)
    assert journal.publish(0, None) == 0
    assert path.read_text().count("exit_code") == 1
