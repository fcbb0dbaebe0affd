"""How the writers of all nodes agree on one checkpoint: a round. Pure.

The writer of rank 0's node begins a round: it asks for a mark, and publishes a position of the op
log. Every node writes its share of the first cut after that position, and publishes which cut that
was. If it was the same on all nodes, the checkpoint is complete. If a node was too slow and found
the cut overwritten by a later one, another round begins at once.

A new round ends the previous one, whatever its state.
"""

from dataclasses import dataclass, field

from hvd_ft.checkpointer.cuts import Cut

_LOOP_BITS, _CUT_BITS, _POSITION_BITS = 6, 32, 26


def share_detail(position: int, cut: Cut) -> int:
    """Returns the detail of a share's event: the cut, and the last bits of the round's position.

    Args:
        position: the position at which the round began.
        cut: the cut of the share.
    """
    low = position % (1 << _POSITION_BITS)
    return (low << _LOOP_BITS | cut.loop) << _CUT_BITS | cut.number


def cut_in(detail: int, position: int) -> Cut | None:
    """Returns the cut in the event of a share; None if the event belongs to another round."""
    rest, number = divmod(detail, 1 << _CUT_BITS)
    low, loop = divmod(rest, 1 << _LOOP_BITS)
    return Cut(loop, number) if low == position % (1 << _POSITION_BITS) else None


@dataclass
class Round:
    """One attempt to write a checkpoint, as a node sees it.

    Attributes:
        position: position of the op log after which the cut lies.
        nodes: number of nodes of the job.
        cut: the cut that this node has written; None: it waits for the snapshot.
        shares: the cuts that nodes have written, by the node's first rank.
        failed: whether this node could not do its part.
    """

    position: int
    nodes: int
    cut: Cut | None = None
    shares: dict[int, Cut] = field(default_factory=dict)
    failed: bool = False

    @property
    def waits_for_snapshot(self) -> bool:
        """Whether this node has still to write its share."""
        return self.cut is None and not self.failed

    def share(self, first_rank: int, detail: int) -> None:
        """Handles that the node with this first rank has written its share."""
        if (cut := cut_in(detail, self.position)) is not None:
            self.shares[first_rank] = cut

    @property
    def of_others(self) -> Cut | None:
        """What another node has written, if any has."""
        return next(iter(self.shares.values()), None)

    @property
    def complete(self) -> bool:
        """Whether all nodes have written the same cut."""
        return len(self.shares) == self.nodes and len(set(self.shares.values())) == 1

    @property
    def torn(self) -> bool:
        """Whether nodes have written different cuts, so that this round cannot be complete."""
        return len(set(self.shares.values())) > 1
