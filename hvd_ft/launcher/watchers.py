"""What `run_job` calls while a job runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hvd_ft.members.hosts import Host
from hvd_ft.native.observer import Observer


class Display(Protocol):
    """Shows a running job."""

    def update(self, observer: Observer) -> None:
        """Called about 4 times a second once the job's arena exists."""

    def output(self, line: str) -> None:
        """Called with every line that the job writes, if `takes_output` is true."""

    takes_output: bool


@dataclass(frozen=True)
class HostChange:
    """A running job is to get other hosts.

    Attributes:
        why: in words.
        size: its number of ranks there.
        withdrawn: the hosts without which it would do, if that is all.
        added: the hosts that it would have besides its present ones, if that is all.
    """

    why: str
    size: int
    withdrawn: tuple[str, ...] = ()
    added: tuple[Host, ...] = ()


class Resizing(Protocol):
    """Decides whether a job gets other hosts."""

    def change(self, now: float) -> HostChange | None:
        """Returns the change that is due: at the job's next step boundary; None: there is none.

        Args:
            now: seconds of time.monotonic().
        """

    def left(self, names: Sequence[str], *, lost: bool) -> None:
        """The job goes on without these hosts, in its processes.

        Args:
            names: of them.
            lost: whether they were lost; else they were given up.
        """

    def joined(self, hosts: Sequence[Host]) -> None:
        """The job goes on with these hosts besides, in its processes."""
