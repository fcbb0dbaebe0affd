"""What the launcher's machine knows of its job when it begins. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from hvd_ft.members.hosts import Host
from hvd_ft.members.membership import Membership


@dataclass(frozen=True)
class JobFacts:
    """The facts of one job.

    Attributes:
        id: the job's.
        members: the membership with which this launcher begins.
        hosts: that the user has named for the job; none if all ranks are on this host.
        spare_hosts: that may replace them, in the order in which they are taken.
        generation: the number of the first agents that this launcher starts.
        resume: whether it continues with a job that another launcher has begun.
        led: whether the job has a record, so that there can be two launchers.
        may_shrink: whether it ends when a host is lost for which there is no spare host, instead of
            waiting for it: it continues with fewer ranks.
        least_in_place: the number of ranks with which it continues in its processes when others
            leave; None: ranks do not leave a running job.
        warm: whether warm spares wait on rank 0's host.
        bootstrap: how Hydra starts processes on other hosts.
        records: whether there are flight records that nobody asks for.
        pid: of the launcher.
    """

    id: str
    members: Membership
    hosts: tuple[Host, ...] = ()
    spare_hosts: tuple[Host, ...] = ()
    generation: int = 0
    resume: bool = False
    led: bool = False
    may_shrink: bool = False
    least_in_place: int | None = None
    warm: bool = False
    bootstrap: str = "ssh"
    records: bool = False
    pid: int = 1

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.members.size

    @property
    def replaces(self) -> bool:
        """Whether other hosts may take the places of lost ones in the running job."""
        return bool(self.spare_hosts) or self.least_in_place is not None

    @property
    def fences(self) -> bool:
        """Whether hosts act under leases only: others may replace them, or continue without."""
        return self.replaces or self.may_shrink
