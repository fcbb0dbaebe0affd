"""Keeps the status page up to date while a job runs, and hears what it asks for."""

from __future__ import annotations

from collections.abc import Callable

from hvd_ft.job.page_messages import Kill, LinkStatus
from hvd_ft.launcher.job_sight import JobSight
from hvd_ft.launcher.watchers import StatusPage
from hvd_ft.system.event_loop import EventLoop

_SHOW_SECONDS = 1.0  # from one state of the links to the next


class PageDriver:
    """The page of one job.

    Args:
        loop: wakes when the page asks for something.
        page: the page; None: there is none, and nothing is done.
        sight: knows whether the job has begun here.
        kill: called with each request to kill a rank.
        links: returns the state of the links at a time of the loop's clock.
    """

    def __init__(
        self,
        loop: EventLoop,
        page: StatusPage | None,
        sight: JobSight,
        *,
        kill: Callable[[Kill], None],
        links: Callable[[float], list[LinkStatus]],
    ) -> None:
        self._loop = loop
        self._page = page
        self._sight = sight
        self._kill = kill
        self._links = links
        self._show_at = 0.0
        self._watch = loop.watch(page, self._hear) if page else None

    def look(self) -> None:
        """Shows the present state, if it is time."""
        now = self._loop.now()
        if self._page is None or now < self._show_at:
            return
        self._show_at = now + _SHOW_SECONDS
        if self._sight.has_begun:
            self._page.follow(self._sight.directory)
        self._page.show_links(self._links(now))

    def answer(self, number: int, problem: str) -> None:
        """Answers a request.

        Args:
            number: of it.
            problem: why nothing was done; "": it was.
        """
        if self._page is not None:
            self._page.answer(number, problem)

    def end(self) -> None:
        """Hears no more of the page."""
        if self._watch is not None:
            self._watch.end()

    def _hear(self) -> None:
        assert self._page
        asked = self._page.asked()
        if asked is None:
            self.end()  # its process has died; the job continues
        for kill in asked or ():
            self._kill(kill)
