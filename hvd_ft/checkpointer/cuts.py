"""Which cuts a node's ranks have in common, and which of them a checkpoint contains. Pure."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hvd_ft.native.types import Snapshot


@dataclass(frozen=True)
class Held:
    """A snapshot in a slot.

    Attributes:
        loop: number of the training loop.
        slot: 0 or 1.
        snapshot: what the slot holds.
    """

    loop: int
    slot: int
    snapshot: Snapshot


@dataclass(frozen=True, order=True)
class Cut:
    """A step boundary of a training loop; a later one is greater."""

    loop: int
    number: int


Parts = Mapping[int, Held]  # by rank


def common(
    ranks: Mapping[int, Sequence[Held]], present: Callable[[int], Collection[int]]
) -> dict[Cut, Parts]:
    """Returns the cuts at which all ranks of a node have snapshots, in order.

    A shared snapshot counts only if all ranks have the same agreement about which arrays are equal;
    otherwise a stripe of it is missing.

    Args:
        ranks: what each rank holds, in all loops.
        present: returns the ranks that are present at a position of the op log.
    """
    found: dict[Cut, dict[int, Held]] = {}
    for rank, slots in ranks.items():
        for held in slots:
            found.setdefault(Cut(held.loop, held.snapshot.cut), {})[rank] = held
    return {
        cut: parts
        for cut, parts in sorted(found.items())
        if parts.keys() >= ranks.keys() & set(present(position_of(parts)))
        and len({held.snapshot.agreement for held in parts.values()}) == 1
    }


def position_of(parts: Parts) -> int:
    """Returns the latest position in the op log at which a rank had its snapshot of a cut."""
    return max(held.snapshot.position for held in parts.values())


def first_behind(cuts: Mapping[Cut, Parts], position: int) -> Cut | None:
    """Returns the earliest cut at which every rank is past a position of the op log.

    All nodes find the same cut, as long as no snapshot has been overwritten.
    """
    behind = (
        cut
        for cut, parts in sorted(cuts.items())
        if all(held.snapshot.position > position for held in parts.values())
    )
    return next(behind, None)


def had_by_all(of_nodes: Iterable[Collection[Cut]]) -> list[Cut]:
    """Returns the cuts that all of these nodes have, the newest one first."""
    sets = [set(cuts) for cuts in of_nodes]
    return sorted(set.intersection(*sets), reverse=True) if sets else []


def with_earlier_loops(cuts: Mapping[Cut, Parts], cut: Cut) -> dict[Cut, Parts]:
    """Returns the cuts in a checkpoint of that cut: also the latest one of each earlier loop."""
    latest = {other.loop: other for other in sorted(cuts) if other.loop < cut.loop}
    return {other: cuts[other] for other in [*latest.values(), cut]}
