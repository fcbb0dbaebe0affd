"""One agent's place in its job, from the creation of the job's files to its end."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from hvd_ft.job.binding import Place
from hvd_ft.job.bound_process import Asked, plan_here
from hvd_ft.job.launch import Launch
from hvd_ft.job.placement import Nodes
from hvd_ft.job.settings import Settings


@dataclass(frozen=True)
class JobContext:
    """One agent's place in its job.

    Attributes:
        rank: the agent's rank.
        settings: the user's settings.
        hosts: the ranks of each host; a guest counts as a separate host.
        job: the job's id.
        directory: the job's directory on this host.
        launch: the launcher's variables.
    """

    rank: int
    settings: Settings
    hosts: Nodes
    job: str
    directory: str
    launch: Launch = Launch()  # noqa: RUF009  (it is frozen)

    @property
    def nodes(self) -> Nodes:
        """The members of the ring; in the flat topology every rank is one and shares no arena."""
        return self.hosts.apart() if self.settings.topology == "flat" else self.hosts

    @property
    def arenas(self) -> str:
        """The directory of this node's arenas; a host's first node has the job's directory."""
        nodes = self.nodes
        first = nodes.firsts[nodes.node_of(self.rank)]
        return (
            self.directory
            if first in self.hosts.firsts and not self.is_guest
            else os.path.join(self.directory, f"rank-{first}")
        )

    @cached_property
    def places(self) -> Sequence[Place]:
        """The places to which this host's ranks are bound; a guest would share its host's CPUs.

        As the agent may use the host before it is bound itself.
        """
        asked = Asked("none" if self.is_guest else self.settings.bind_to, self.settings.map_by)
        return plan_here(len(self.host_ranks), asked)

    @property
    def place(self) -> Place:
        """What this rank is bound to."""
        return self.places[self.host_ranks.index(self.rank)]

    def memory_of(self, ranks: range) -> list[int]:
        """Returns the NUMA nodes for data that these ranks of this host share; empty: any."""
        places = [self.places[self.host_ranks.index(rank)] for rank in ranks]
        return sorted({node for place in places for node in place.memory})

    @property
    def host_ranks(self) -> range:
        """The ranks of this host."""
        return self.hosts.ranks(self.hosts.node_of(self.rank))

    @property
    def leads_host(self) -> bool:
        """Whether this rank is the first one of its host, which acts for the host."""
        return self.rank == self.host_ranks.start

    @property
    def is_guest(self) -> bool:
        """Whether this rank's place is a guest of another place's host (members/membership.py)."""
        return self.launch.guest_place(self.rank) is not None
