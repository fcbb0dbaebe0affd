"""Determines which ranks are on which node, from the agents' hosts. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from hvd_ft.errors import HvdFtError


@dataclass(frozen=True)
class Nodes:
    """The nodes of a job, in the order of their ranks.

    Attributes:
        bounds: the first rank of every node, and the number of ranks.
    """

    bounds: tuple[int, ...]

    @property
    def firsts(self) -> tuple[int, ...]:
        """The first rank of every node."""
        return self.bounds[:-1]

    @classmethod
    def of(cls, hosts: Sequence[str]) -> "Nodes":
        """Finds the nodes.

        Args:
            hosts: the host of every rank.

        Raises:
            HvdFtError: the ranks of a host are not consecutive.
        """
        firsts = [r for r, host in enumerate(hosts) if r == 0 or hosts[r - 1] != host]
        for first in firsts:
            if hosts[first] in hosts[:first]:
                raise HvdFtError(
                    f"the ranks of {hosts[first]} are not consecutive (rank {first} is there, "
                    f"rank {first - 1} is not): have them placed host by host, as hvdft run does"
                )
        return cls((*firsts, len(hosts)))

    def apart(self) -> "Nodes":
        """Returns the nodes for the flat topology, with every rank a node of its own."""
        return Nodes(tuple(range(self.bounds[-1] + 1)))

    def __len__(self) -> int:
        return len(self.firsts)

    def node_of(self, rank: int) -> int:
        """Returns the number of the rank's node."""
        return sum(first <= rank for first in self.firsts) - 1

    def ranks(self, node: int) -> range:
        """Returns the ranks of a node."""
        return range(self.bounds[node], self.bounds[node + 1])
