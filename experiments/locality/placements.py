"""Placements of ranks on nodes, and what they mean for a ring. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from hvd_ft.errors import HvdFtError
from hvd_ft.members.hosts import Host, parse_placement

ROUND_ROBIN = "round-robin:"


@dataclass(frozen=True)
class Placement:
    """Which node each rank is on.

    Attributes:
        text: As it was given, such as `4-3-1` or `round-robin:4-2-2`.
        nodes: The number of each rank's node, in the order of ranks.
    """

    text: str
    nodes: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of nodes."""
        return max(self.nodes) + 1

    @property
    def crosses_at_once(self) -> bool:
        """Whether a ring's edges between nodes all begin at even ranks, or all at odd ones.

        Then `serial`, in which even and odd ranks take turns, uses the network in half of its time.
        """
        following = (*self.nodes[1:], self.nodes[0])
        crossing = [
            r
            for r, (own, next_) in enumerate(zip(self.nodes, following, strict=True))
            if own != next_
        ]
        return len({rank % 2 for rank in crossing}) == 1

    def hosts(self, names: Sequence[str]) -> tuple[Host, ...]:
        """Returns the hosts in the order of ranks; one that has ranks in two places is there twice.

        Args:
            names: of the nodes, at least `size`.
        """
        return tuple(Host(names[node], len(list(ranks))) for node, ranks in groupby(self.nodes))


def parse(text: str) -> Placement:
    """Reads a placement: the ranks of each node, which follow each other, or are dealt in turn.

    Args:
        text: Such as `4-3-1`; `round-robin:4-3-1` gives each node that has room one rank in turn.

    Raises:
        HvdFtError: It is not a placement.
    """
    in_turn = text.startswith(ROUND_ROBIN)
    try:
        counts = [host.slots for host in parse_placement(text.removeprefix(ROUND_ROBIN))]
    except HvdFtError:
        raise HvdFtError(
            f"{text!r} is not a placement; give the ranks of each node, such as 4-3-1 or "
            f"{ROUND_ROBIN}4-3-1"
        ) from None
    # Sorted by its turn, a node's i-th rank comes behind the (i - 1)-th rank of every other node.
    ranks = [(turn if in_turn else 0, node) for node, n in enumerate(counts) for turn in range(n)]
    return Placement(text, tuple(node for _, node in sorted(ranks)))


def parse_list(text: str) -> tuple[Placement, ...]:
    """Reads placements that are separated by commas.

    Raises:
        HvdFtError: One is none, is there twice, or has another number of ranks than the first.
    """
    placements = tuple(map(parse, text.split(",")))
    if len(set(placements)) < len(placements):
        raise HvdFtError(f"{text}: a placement is there twice; give each of them once")
    if len({len(placement.nodes) for placement in placements}) > 1:
        raise HvdFtError(f"{text}: placements of different numbers of ranks cannot be compared")
    return placements
