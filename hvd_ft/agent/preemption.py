"""When a job that is preempted has its checkpoint. Pure."""

from hvd_ft.native.types import Event, EventType


class Preemption:
    """What rank 0's agent knows of it."""

    def __init__(self) -> None:
        self._asked = False
        self._position: int | None = None  # of the op log, behind which the checkpoint lies

    def ask(self) -> bool:
        """A checkpoint is asked for; returns whether it was not before."""
        before, self._asked = self._asked, True
        return not before

    def is_done_by(self, event: Event) -> bool:
        """Takes an event of the job; returns whether the checkpoint is complete with it.

        One that was begun before it was asked for does not count.
        """
        if not self._asked:
            return False
        if event.type is EventType.CHECKPOINT:
            self._position = event.detail
        return event.type is EventType.CHECKPOINTED and event.detail == self._position
