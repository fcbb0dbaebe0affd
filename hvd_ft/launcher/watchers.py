"""The interfaces that `run_job` calls while a job runs."""

from collections.abc import Sequence
from typing import Protocol

from hvd_ft.job.page_messages import Kill, LinkStatus
from hvd_ft.launcher.machine.seen import HostChange
from hvd_ft.members.hosts import Host
from hvd_ft.native.observer import Observer


class Display(Protocol):
    """Shows a running job."""

    def update(self, observer: Observer) -> None:
        """Called about 4 times a second once the job's arena exists."""

    def output(self, line: str) -> None:
        """Called with every line that the job writes, if `takes_output` is true."""

    takes_output: bool


class StatusPage(Protocol):
    """The process that serves the job's status page. Nothing here ever waits for it."""

    def fileno(self) -> int:
        """Returns a descriptor that is readable when `asked` has something to read."""

    def asked(self) -> list[Kill] | None:
        """Returns the requests that have come, possibly none; None if the process is gone."""

    def follow(self, directory: str) -> None:
        """Shows the job with this directory on this host."""

    def show_links(self, links: Sequence[LinkStatus]) -> None:
        """Shows the state of the links between nodes."""

    def answer(self, number: int, problem: str) -> None:
        """Answers a request.

        Args:
            number: of it.
            problem: why nothing was done; "": it was.
        """


class Resizing(Protocol):
    """Decides whether the hosts of a job change."""

    def change(self, now: float) -> HostChange | None:
        """Returns the change to make at the job's next step boundary; None if there is none.

        Args:
            now: seconds of time.monotonic().
        """

    def left(self, names: Sequence[str], *, lost: bool) -> None:
        """The job continues without these hosts, in its running processes.

        Args:
            names: the names of the hosts.
            lost: whether they were lost; otherwise they were given up.
        """

    def joined(self, hosts: Sequence[Host]) -> None:
        """The job continues with these additional hosts, in its running processes."""
