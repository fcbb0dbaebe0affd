"""Reads a running job's state from the shared memory of the launcher's own host."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from hvd_ft.errors import HvdFtError
from hvd_ft.job.directory import job_path
from hvd_ft.launcher.job import ResolvedJob
from hvd_ft.launcher.machine.seen import WorkersSeen
from hvd_ft.launcher.outcome import Outcome
from hvd_ft.launcher.watchers import Display
from hvd_ft.native.observer import Observer
from hvd_ft.native.types import Left, State


class JobSight:
    """The view of one job.

    Args:
        resolved: the job.
        display: shows the job while it runs.
        watch: called with an observer of the running job at each look.
        outcome: counts what the job comes to.

    Attributes:
        directory: of the job on this host.
    """

    def __init__(
        self,
        resolved: ResolvedJob,
        display: Display | None,
        watch: Callable[[Observer], None] | None,
        outcome: Outcome,
    ) -> None:
        self.directory = job_path(resolved.settings.arena_dir, resolved.job.id)
        self._display = display
        self._watch = watch
        self._outcome = outcome
        self._observer: Observer | None = None

    @property
    def takes_output(self) -> Display | None:
        """The display, if it shows the job's output too."""
        return self._display if self._display and self._display.takes_output else None

    @property
    def has_begun(self) -> bool:
        """Whether the job has been seen here."""
        return self._observer is not None

    def look(self) -> None:
        """Updates the display and the watch, once the job has begun."""
        if self._observer is None:
            # Not there yet, or not complete yet: the next look tries again.
            with contextlib.suppress(HvdFtError):
                self._observer = Observer(self.directory)
        if self._observer is None:
            return
        self._outcome.look(self._observer)
        if self._display:
            self._display.update(self._observer)
        if self._watch:
            self._watch(self._observer)

    def workers(self, *, begun: bool, train: bool) -> WorkersSeen:
        """Returns the requested facts about the workers.

        Args:
            begun: whether to count the workers that have called hvd.init().
            train: whether to check that all workers are beyond their first step.
        """
        if (job := self._observer) is None:
            return WorkersSeen()
        states = [job.status(rank) for rank in range(job.size)] if begun or train else []
        count = sum(status.state != State.STARTING for status in states) if begun else None
        return WorkersSeen(count, train and all(status.step > 1 for status in states))

    def left(self) -> dict[int, Left]:
        """Returns whether each rank has left the running job."""
        job = self._observer
        return {rank: job.left(rank) for rank in range(job.size)} if job else {}

    def close(self) -> None:
        """Closes the observer."""
        self._outcome.part_ended()
        if self._observer:
            self._observer.close()
            self._observer = None
