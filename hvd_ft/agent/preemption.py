"""Decides when a preempted job has its checkpoint. Pure."""

from hvd_ft.native.types import Event, EventType


class Preemption:
    """What rank 0's agent knows of it."""

    def __init__(self) -> None:
        self._asked = False
        self._position: int | None = None  # of the op log, behind which the checkpoint lies

    def ask(self) -> bool:
        """Notes that a checkpoint is requested; returns whether this is the first request."""
        before, self._asked = self._asked, True
        return not before

    def is_done_by(self, event: Event) -> bool:
        """Handles an event of the job; returns whether it completes the checkpoint.

        A checkpoint that was begun before the request does not count.
        """
        if not self._asked:
            return False
        if event.type is EventType.CHECKPOINT:
            self._position = event.detail
        return event.type is EventType.CHECKPOINTED and event.detail == self._position
