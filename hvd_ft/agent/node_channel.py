"""Messages between the first agents of a job's nodes while a generation begins."""

from collections.abc import Callable, Sequence
from typing import Any

from hvd_ft.agent.rendezvous import Rendezvous
from hvd_ft.job.placement import Nodes

_BATCH_BYTES = 16 << 20  # between two signs of life


class NodeChannel:
    """Collective calls of all agents, in which the first one of each node acts.

    Args:
        rendezvous: of all agents.
        nodes: the ranks of each node.

    Attributes:
        firsts: the first rank of each node.
        node: this agent's.
    """

    def __init__(self, rendezvous: Rendezvous, nodes: Nodes) -> None:
        self._rendezvous = rendezvous
        self.firsts = nodes.firsts
        self.node = nodes.node_of(rendezvous.rank)
        self._leads = rendezvous.rank in self.firsts

    def is_at(self, node: int) -> bool:
        """Returns whether this is the first agent of a node."""
        return self._leads and self.node == node

    def at(self, nodes: Sequence[int], what: str, act: Callable[[], Any]) -> list[Any]:
        """Lets the first agents of some nodes do something.

        Returns:
            What they returned (anything that JSON can represent), by node; None for other nodes.

        Raises:
            HvdFtError: on all agents, if one of them raised it.
        """
        acts = self._leads and self.node in nodes
        told = self._rendezvous.agree(what, act if acts else lambda: None)
        return [told[first] for first in self.firsts]

    def pass_on(
        self,
        what: str,
        source: int,
        dest: int,
        sizes: Sequence[int],
        views: Sequence[memoryview],
    ) -> None:
        """Copies ranges of memory from one node to another; the other nodes wait.

        Args:
            what: names the copied data in the error when an agent does not take part.
            source: the node that has the data.
            dest: the node that gets it.
            sizes: sizes of the ranges, in bytes; known to all nodes.
            views: the ranges, at both ends.
        """
        batch = 0
        for number, size in enumerate(sizes):
            for begin in range(0, size, _BATCH_BYTES):
                end = min(begin + _BATCH_BYTES, size)
                if self.is_at(source):
                    self._rendezvous.send(what, self.firsts[dest], views[number][begin:end])
                elif self.is_at(dest):
                    self._rendezvous.receive(what, self.firsts[source], views[number][begin:end])
                batch += end - begin
                if batch >= _BATCH_BYTES:
                    self._rendezvous.exchange(what, None)
                    batch = 0
        self._rendezvous.exchange(what, None)
