"""The interfaces that `run_job` calls while a job runs."""

from collections.abc import Sequence
from typing import Protocol

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


class Resizing(Protocol):
    """Decides whether the hosts of a job change."""

    def change(self, now: float) -> HostChange | None:
        """Returns the change to make at the job's next step boundary; None if there is none.

        Args:
            now: seconds of time.monotonic().
        """

    def left(self, names: Sequence[str], *, lost: bool) -> None:
        """The job goes on without these hosts, in its running processes.

        Args:
            names: the names of the hosts.
            lost: whether they were lost; otherwise they were given up.
        """

    def joined(self, hosts: Sequence[Host]) -> None:
        """The job goes on with these additional hosts, in its running processes."""
