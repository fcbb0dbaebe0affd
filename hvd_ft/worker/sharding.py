"""Which samples of a data set each rank gets, with a number of ranks that may change. Pure.

An epoch has one order of all samples, the same on every rank, and one position in it, also the
same: how many samples have been dealt out. A step with batches of b samples on n ranks takes the
next b * n samples; rank r gets every n-th of them, from the r-th on. So one number is the position
of all ranks, however many there are, were, or will be.
"""

import numpy as np


def epoch_order(samples: int, epoch: int, seed: int | None) -> np.ndarray:
    """Returns the order of an epoch.

    Args:
        samples: number of samples in the data set.
        epoch: number of the epoch.
        seed: of the permutation; None: samples are not shuffled.

    Returns:
        int64, [samples]: each index once.
    """
    if seed is None:
        return np.arange(samples)
    return np.random.default_rng([seed, epoch]).permutation(samples)


def shard(order: np.ndarray, begin: int, end: int, rank: int, size: int) -> np.ndarray:
    """Returns a rank's part of a range of samples, as many as every other rank gets.

    If the range cannot be divided evenly, it is filled up with the order's first samples.

    Args:
        order: the epoch's order.
        begin: position of the first sample.
        end: position after the last one; a position after the order's end counts as its end.
        rank: 0 to size - 1.
        size: number of ranks.

    Returns:
        int64, [ceil((end - begin) / size)].
    """
    end = min(end, len(order))
    each = -(-(end - begin) // size)
    positions = begin + rank + size * np.arange(each)
    # Only the last one can lie behind the end.
    found: np.ndarray = order[np.where(positions < end, positions, (positions - end) % len(order))]
    return found


def steps_left(samples: int, position: int, of_step: int, drop_remainder: bool) -> int:
    """Returns how many steps an epoch still has, the same number on every rank.

    Args:
        samples: number of samples in the data set.
        position: number of samples that have been dealt out.
        of_step: number of samples that a step takes, on all ranks together.
        drop_remainder: whether a last step with fewer samples is left out.
    """
    left = samples - position
    return left // of_step if drop_remainder else -(-left // of_step)
