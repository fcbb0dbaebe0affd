"""The line at a job's end."""

from dataclasses import dataclass, field

from hvd_ft.launcher.outcome import Outcome
from hvd_ft.native.types import Event, EventType, State, Status

S = 10**9


@dataclass
class Job:
    """What an observer would show of a job of two ranks."""

    steps: tuple[int, int] = (0, 0)
    events: list[Event] = field(default_factory=list)
    incarnation: int = 0
    size: int = 2

    def status(self, rank: int) -> Status:
        return Status(State.RUNNING, self.incarnation, 1, self.steps[rank], 0, 0)

    def report(self, start: int = 0) -> list[Event]:
        return self.events[start:]

    def happens(self, seconds: float, kind: EventType, rank: int, incarnation: int = 0) -> None:
        self.events.append(Event(int(seconds * S), kind, rank, incarnation, 9))


def test_nothing_is_said_of_a_job_that_failed_before_it_began() -> None:
    assert Outcome().line(2) == ""


def test_a_job_without_a_failure() -> None:
    outcome = Outcome()
    outcome.look(Job((299, 300)))
    outcome.part_ended()
    assert outcome.line(0) == "done: 300 steps, 0 failures"


def test_a_failure_and_checkpoints_are_counted_once_and_overlapping_times_too() -> None:
    outcome, job = Outcome(), Job((1, 1))
    outcome.look(job)
    job.happens(10, EventType.FAILED, 0)
    job.happens(12, EventType.FAILED, 1)
    outcome.look(job)
    job.happens(13, EventType.JOINED, 0, 1)
    job.happens(16.25, EventType.JOINED, 1, 1)
    job.happens(17, EventType.CHECKPOINTED, 0)
    job.steps = (300, 300)
    outcome.look(job)
    outcome.look(job)
    outcome.part_ended()
    expected = "300 steps, 2 failures, 6.2 s lost, 0 steps lost, 1 checkpoint"
    assert outcome.line(0) == f"done: {expected}"
    assert outcome.line(3) == ""  # the line before says why, and what to do


def test_training_loops_are_added_up() -> None:
    outcome = Outcome()
    for steps in (50, 100, 3, 40):
        outcome.look(Job((steps, steps)))
    outcome.part_ended()
    assert outcome.line(0) == "done: 140 steps, 0 failures"


def test_a_restarted_rank_that_repeats_steps_is_no_other_training_loop() -> None:
    outcome, job = Outcome(), Job((50, 50))
    outcome.look(job)
    job.incarnation = 1
    for step in (0, 45, 60):
        job.steps = (step, step)
        outcome.look(job)
    job.steps = (2, 2)  # and then there is another loop
    outcome.look(job)
    outcome.part_ended()
    assert outcome.line(0) == "done: 62 steps, 0 failures"


def test_a_part_that_begins_from_a_checkpoint_repeats_steps() -> None:
    outcome = Outcome()
    outcome.look(Job((70, 71)))
    outcome.part_ended()
    outcome.continues_from("/ck/abc-loop1-step00000060")
    outcome.look(Job((0, 0)))
    outcome.look(Job((100, 100)))
    outcome.part_ended()
    assert outcome.line(0) == "done: 100 steps, 0 failures, 11 steps lost"
    outcome.hosts_lost(1)
    assert outcome.line(0) == "done: 100 steps, 0 failures, 1 host lost, 11 steps lost"
