"""What the launcher sees of a running job in the shared memory of its own host."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from hvd_ft.errors import HvdFtError
from hvd_ft.job.directory import job_path
from hvd_ft.launcher.job import ResolvedJob
from hvd_ft.launcher.machine.seen import WorkersSeen
from hvd_ft.launcher.watchers import Display
from hvd_ft.native.observer import Observer
from hvd_ft.native.types import Left, State


class JobSight:
    """The sight of one job.

    Args:
        resolved: the job.
        display: shows the job while it runs.
        watch: called with an observer of the running job at each look.
    """

    def __init__(
        self,
        resolved: ResolvedJob,
        display: Display | None,
        watch: Callable[[Observer], None] | None,
    ) -> None:
        self._directory = job_path(resolved.settings.arena_dir, resolved.job.id)
        self._display = display
        self._watch = watch
        self._observer: Observer | None = None

    @property
    def takes_output(self) -> Display | None:
        """The display, if it shows the job's output too."""
        return self._display if self._display and self._display.takes_output else None

    def look(self) -> None:
        """Shows the job as it is now, if it has begun."""
        if self._observer is None:
            # Not there yet, or not complete yet: the next look tries again.
            with contextlib.suppress(HvdFtError):
                self._observer = Observer(self._directory)
        if self._observer and self._display:
            self._display.update(self._observer)
        if self._observer and self._watch:
            self._watch(self._observer)

    def workers(self, *, begun: bool, train: bool) -> WorkersSeen:
        """Returns what is known of the workers; only what is asked for.

        Args:
            begun: whether to count those that have called hvd.init().
            train: whether to find out whether all are beyond their first step.
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
        """Ends the sight."""
        if self._observer:
            self._observer.close()
            self._observer = None
