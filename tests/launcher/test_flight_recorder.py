"""When there is a flight record, and what belongs to it."""

from typing import Any

import pytest

from hvd_ft.job.lifeline_messages import FlightAsk, ShimStatus
from hvd_ft.launcher.machine.actions import Actions, Send, WriteFlight
from hvd_ft.launcher.machine.flight_recorder import (
    LIMIT_SECONDS,
    MOST,
    QUIET_SECONDS,
    FlightRecorder,
)
from hvd_ft.launcher.machine.shim_roll import ShimRoll

LATE = f"it did not answer within {LIMIT_SECONDS:g} s"


class Job:
    """A job of three ranks on two hosts, all of whose shims have lines."""

    def __init__(self, automatic: bool = True, ranks: int = 3) -> None:
        self.out = Actions()
        self.roll = ShimRoll(self.out)
        for rank in range(ranks):
            self.roll.note(rank, ShimStatus(rank, f"n{rank // 2}", 0, False))
        self.recorder = FlightRecorder(automatic, 3, self.roll, self.out, pid=17)
        self.out.take()

    def take(self) -> list[Any]:
        return self.out.take()

    def records(self) -> list[WriteFlight]:
        return [each for each in self.out.take() if isinstance(each, WriteFlight)]


def part(rank: int) -> dict[str, Any]:
    return {"stacks": f"of {rank}"}


def test_all_are_asked_and_the_record_waits_for_no_more() -> None:
    job = Job()
    job.recorder.wanted("stall", "rank 1 hangs", 10.0)
    assert job.take() == [Send(rank, FlightAsk(1)) for rank in range(3)]
    assert job.recorder.deadline == 10.0 + LIMIT_SECONDS
    for rank in (0, 2):
        job.recorder.part(rank, 1, part(rank), 10.5)
    assert job.take() == []
    job.recorder.part(1, 1, part(1), 11.0)
    assert job.take() == [
        WriteFlight((("stall", "rank 1 hangs"),), {rank: part(rank) for rank in range(3)}, ())
    ]
    assert not job.recorder.is_open


def test_who_does_not_answer_is_missing() -> None:
    job = Job()
    job.recorder.wanted("asked", "why", 10.0)
    job.take()
    job.recorder.part(0, 1, part(0), 10.1)
    job.recorder.look(10.0 + LIMIT_SECONDS - 0.1)
    assert job.take() == []
    job.recorder.look(10.0 + LIMIT_SECONDS)
    [record] = job.records()
    assert record.missing == ((1, "n0", LATE), (2, "n1", LATE))


def test_who_cannot_answer_is_not_waited_for() -> None:
    job = Job(ranks=2)
    job.roll.note(1, ShimStatus(1, "n0", 0, True))
    job.recorder.wanted("asked", "why", 10.0)
    job.recorder.part(0, 1, part(0), 10.1)
    [record] = job.records()
    assert record.missing == (
        (1, "n0", "its agent has ended"),
        (2, "", "its shim has no connection to the launcher"),
    )


def test_before_there_are_agents_a_record_says_so() -> None:
    job = Job(ranks=0)
    job.recorder.wanted("asked", "why", 10.0)
    job.recorder.look(10.0)
    [record] = job.records()
    assert [rank for rank, *_ in record.missing] == [0, 1, 2]


def test_a_part_of_an_earlier_record_does_not_count() -> None:
    job = Job()
    job.recorder.wanted("asked", "one", 10.0)
    job.recorder.look(20.0)
    job.recorder.wanted("asked", "two", 20.0)
    job.take()
    for rank in range(3):
        job.recorder.part(rank, 1, part(rank), 20.1)
    assert job.take() == []
    assert job.recorder.is_open


def test_more_reasons_make_no_more_records() -> None:
    job = Job()
    job.recorder.wanted("stall", "one", 10.0)
    job.recorder.wanted("stall", "two", 10.1)
    job.recorder.look(12.0)
    [record] = job.records()
    assert record.reasons == (("stall", "one"), ("stall", "two"))
    job.recorder.wanted("stall", "three", 12.1)
    assert job.take() == [], "it is quiet for a time"
    job.recorder.wanted("asked", "now", 12.2)
    assert job.take() != [], "but whoever asks gets one"
    job.recorder.look(15.0)
    job.take()
    job.recorder.wanted("stall", "four", 15.0 + QUIET_SECONDS)
    assert job.take() != []


def test_without_a_report_only_who_asks_gets_one() -> None:
    job = Job(automatic=False)
    for kind in ("stall", "stop"):
        job.recorder.wanted(kind, "why", 10.0)
    job.recorder.part(0, 0, part(0), 10.0)
    assert not job.recorder.awaits_link("why", 10.0)
    [said] = job.take()
    assert "--report FILE keeps such records, and kill -USR2 17 writes one now" in said.text
    job.recorder.wanted("asked", "why", 10.0)
    assert job.take() != []


@pytest.mark.parametrize("kind", ["stop", "link"])
def test_how_to_get_a_record_is_said_once_without_what_is_too_late(kind: str) -> None:
    job = Job(automatic=False)
    for now in (10.0, 99.0):
        job.recorder.wanted(kind, "why", now)
    [said] = job.take()
    assert "--report FILE keeps such records (docs" in said.text


def test_there_is_an_end_to_them() -> None:
    job = Job()
    for number in range(MOST + 5):
        job.recorder.wanted("stall", "again", number * 100.0)
        job.recorder.look(number * 100.0 + 50)
    assert len(job.records()) == MOST


@pytest.mark.parametrize("parts_first", [False, True])
def test_of_a_stop_there_is_one_and_nobody_is_asked(parts_first: bool) -> None:
    job = Job()
    if parts_first:
        job.recorder.part(2, 0, part(2), 10.0)
    job.recorder.wanted("stop", "rank 0 failed too often", 10.1)
    assert job.take() == []
    for rank in (0, 1):
        job.recorder.part(rank, 0, part(rank), 10.2)
    if not parts_first:
        job.recorder.end(10.3)
    [record] = job.records()
    assert record.reasons == (("stop", "rank 0 failed too often"),)
    assert len(record.parts) == (3 if parts_first else 2)
    job.recorder.part(2, 0, part(2), 10.4)
    assert not job.recorder.is_open, "a late part begins no other"


def test_of_a_stop_whose_reason_was_lost_there_is_one_too() -> None:
    job = Job()
    job.recorder.part(2, 0, part(2), 10.0)
    job.recorder.look(10.0 + LIMIT_SECONDS)
    [record] = job.records()
    assert record.reasons == (("stop", "the job is being stopped"),)
    assert [rank for rank, *_ in record.missing] == [0, 1]
    job.recorder.part(1, 0, part(1), 10.1 + LIMIT_SECONDS)
    assert not job.recorder.is_open


def test_a_stop_during_a_stall_is_in_its_record() -> None:
    job = Job()
    job.recorder.wanted("stall", "one", 10.0)
    job.recorder.wanted("stop", "two", 10.1)
    for rank in range(3):
        job.recorder.part(rank, 0, part(rank), 10.2)
    [record] = job.records()
    assert [kind for kind, _ in record.reasons] == ["stall", "stop"]
    job.recorder.part(0, 1, part(0), 10.3)
    job.recorder.part(0, 0, part(0), 10.3)
    assert not job.recorder.is_open


def test_agents_of_a_broken_link_live_until_there_is_a_record_of_it() -> None:
    job = Job()
    assert job.recorder.awaits_link("n0 -> n1 stands for 30 s", 10.0)
    assert job.recorder.awaits_link("n0 -> n1 stands for 31 s", 11.0)
    job.recorder.look(10.0 + LIMIT_SECONDS)
    [record] = job.records()
    assert record.reasons == (("link", "n0 -> n1 stands for 30 s"),)
    assert not job.recorder.awaits_link("n0 -> n1 stands for 32 s", 12.1), "now they are killed"


def test_a_broken_link_joins_a_record_under_way() -> None:
    job = Job()
    job.recorder.wanted("stall", "one", 10.0)
    assert job.recorder.awaits_link("n0 -> n1 stands", 10.5)
    job.recorder.look(12.0)
    assert [kind for kind, _ in job.records()[0].reasons] == ["stall", "link"]
    assert not job.recorder.awaits_link("n0 -> n1 stands", 12.1)
