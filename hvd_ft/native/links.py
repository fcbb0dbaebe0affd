"""Links between nodes, and their ends' counts of transfers."""

from typing import NamedTuple


class Counts(NamedTuple):
    """Transfers of one link, since its generation of agents began, as one end has counted them.

    Attributes:
        begun: transfers sent, or in flight, from this end.
        posted: transfers from the other end that this end is ready for or has taken.
        arrived: transfers that have arrived from the other end.
    """

    begun: int
    posted: int
    arrived: int


class End(NamedTuple):
    """One end of a link.

    Attributes:
        node: the node at this end.
        peer: the node at the other end.
        kind: what travels over the link: data of the ring, to the successor or from the
            predecessor; gathered ops; or the mirror.
    """

    node: int
    peer: int
    kind: str

    @property
    def other(self) -> "End":
        """The link's other end."""
        return End(self.peer, self.node, _OTHERS[self.kind])


TO_SUCCESSOR, TO_PREDECESSOR, MIRROR, GATHER = "successor", "predecessor", "mirror", "gather"
_OTHERS = {
    TO_SUCCESSOR: TO_PREDECESSOR,
    TO_PREDECESSOR: TO_SUCCESSOR,
    MIRROR: MIRROR,
    GATHER: GATHER,
}
