"""Which arrays are equal on all ranks of a node, and on the ranks of another node. Pure."""

from collections.abc import Mapping, Set
from dataclasses import dataclass

import numpy as np
import xxhash

from hvd_ft.worker.shared_contents import Contents


@dataclass(frozen=True)
class Common:
    """Arrays that all ranks of a node have, by their number in the snapshot's order.

    Attributes:
        arrays: as the first rank has them.
        prints: a fingerprint of each, with its type and shape.
    """

    arrays: Mapping[int, np.ndarray]
    prints: Mapping[int, str]

    def only(self, numbers: Set[int]) -> "Common":
        """Returns what of it has these numbers."""
        arrays = {number: self.arrays[number] for number in numbers}
        return Common(arrays, {number: self.prints[number] for number in numbers})


def common_arrays(ranks: Mapping[int, Contents]) -> Common:
    """Compares the arrays of a node's ranks.

    Args:
        ranks: their snapshots at the same cut.
    """
    first, *others = [contents for _, contents in sorted(ranks.items())]
    orders = [list(other.arrays) for other in others]
    arrays, prints = {}, {}
    for number, (name, array) in enumerate(first.arrays.items()):
        mine = fingerprint(array)
        if name in first.shared or all(
            number < len(order) and fingerprint(other.arrays[order[number]]) == mine
            for other, order in zip(others, orders, strict=True)
        ):
            arrays[number], prints[number] = array, mine
    return Common(arrays, prints)


def fingerprint(array: np.ndarray) -> str:
    """Returns a hash of an array, its type and its shape."""
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return f"{array.dtype.name} {list(array.shape)} {xxhash.xxh3_128_hexdigest(data.data)}"
