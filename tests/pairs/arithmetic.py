"""What every rank of a job computes, in whole numbers, and what it has to come to. Pure."""

import zlib
from collections.abc import Iterable, Sequence

import numpy as np

VALUES = 500
Stretch = tuple[int, int]  # so many steps, by so many ranks


def beginning() -> np.ndarray:
    return np.arange(VALUES, dtype=np.float64)


def contribution(weights: np.ndarray, rank: int, step: int) -> np.ndarray:
    """What a rank gives to the sum of a step; the sum is what the weights are next."""
    return np.mod(3 * weights + rank + step, 17.0)


def own_next(own: int, rank: int, step: int) -> int:
    """What only a rank itself has: it comes from its snapshots, or from nowhere."""
    return (own * 31 + step * (rank + 1)) % 65521


def digest(weights: np.ndarray) -> str:
    return f"{zlib.crc32(weights.tobytes()):08x}"


def expected(stretches: Iterable[Stretch]) -> str:
    """Returns the digest that all ranks have after these steps."""
    weights, step = beginning(), 0
    for count, ranks in stretches:
        for _ in range(count):
            weights = sum(contribution(weights, rank, step) for rank in range(ranks))
            step += 1
    return digest(weights)


def expected_own(rank: int, steps: int) -> int:
    """Returns what a rank has of its own after so many steps, if it was there in all of them."""
    own = 0
    for step in range(steps):
        own = own_next(own, rank, step)
    return own


def longer(stretches: Sequence[Sequence[int]], ranks: int) -> list[list[int]]:
    """Returns the stretches with one more step."""
    if stretches and stretches[-1][1] == ranks:
        return [*map(list, stretches[:-1]), [stretches[-1][0] + 1, ranks]]
    return [*map(list, stretches), [1, ranks]]
