"""Inputs whose reduction is known exactly, and the count of wrong elements.

All inputs are small whole numbers, so results are exact in every type and in every order of
summing. Elements differ from their neighbours, between ranks and between phases, so a stale,
shifted, missing or doubled contribution shows.
"""

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def contribution(op: str, dtype: str, count: int, rank: int, size: int, *, phase: int) -> Array:
    """Returns a rank's input.

    Args:
        op: one of `series.OPS`.
        dtype: one of `series.DTYPES`.
        count: number of elements.
        rank: the rank whose input it is.
        size: number of ranks.
        phase: another phase has other values.
    """
    return np.resize(_pattern(op, rank, size, phase).astype(dtype), count)


def result(op: str, dtype: str, count: int, size: int, *, phase: int) -> Array:
    """Returns the correct result; the arguments are as for `contribution`."""
    patterns = np.stack([_pattern(op, rank, size, phase) for rank in range(size)])
    reduced = {
        "sum": patterns.sum(axis=0),
        "average": patterns.sum(axis=0) / size,
        "min": patterns.min(axis=0),
        "max": patterns.max(axis=0),
        "prod": patterns.prod(axis=0),
    }[op]
    return np.resize(reduced.astype(dtype), count)


def count_wrong(op: str, got: Array, expected: Array) -> int:
    """Returns how many elements differ; an average may be off by the rounding of its division."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return int(expected.size)
    if op != "average":
        return int(np.count_nonzero(got != expected))
    allowed = 4 * float(np.finfo(expected.dtype).eps)
    return int(np.count_nonzero(~np.isclose(got, expected, rtol=allowed, atol=0)))


def _pattern(op: str, rank: int, size: int, phase: int) -> Array:
    # 7 is coprime to the powers of two at which buffers are split.
    index = np.arange(7 * size) + phase
    if op == "prod":  # one rank's factor is not 1, so the product stays small
        return np.where(index % size == rank, index % 7 + 2, 1)
    return (index + 3 * rank) % 7 + 1
