"""When a job that is preempted has its checkpoint."""

from hvd_ft.agent.checkpoints import Preemption
from hvd_ft.native.types import Event, EventType


def event(kind: EventType, detail: int) -> Event:
    return Event(0, kind, 0, 0, detail)


def test_a_checkpoint_counts_that_began_after_it_was_asked_for() -> None:
    preemption = Preemption()
    assert not preemption.is_done_by(event(EventType.CHECKPOINT, 5))
    assert preemption.ask()
    assert not preemption.ask()
    assert not preemption.is_done_by(event(EventType.CHECKPOINTED, 5))
    assert not preemption.is_done_by(event(EventType.CHECKPOINT, 9))
    assert not preemption.is_done_by(event(EventType.SNAPSHOT, 9))
    assert not preemption.is_done_by(event(EventType.CHECKPOINTED, 5))
    assert preemption.is_done_by(event(EventType.CHECKPOINTED, 9))
