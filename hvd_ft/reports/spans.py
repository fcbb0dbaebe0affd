"""Sets of moments as sorted lists of spans that do not touch. Pure; times are whole numbers."""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

Span: TypeAlias = tuple[int, int]  # from the first moment up to, and without, the second


def merged(spans: Iterable[Span]) -> list[Span]:
    """Returns the union of spans in any order; empty ones do not count."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if start >= end:
            continue
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def common(one: Sequence[Span], other: Sequence[Span]) -> list[Span]:
    """Returns what two merged lists have in common."""
    found = []
    i = j = 0
    while i < len(one) and j < len(other):
        start, end = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if start < end:
            found.append((start, end))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return found


def without(one: Sequence[Span], other: Sequence[Span]) -> list[Span]:
    """Returns the moments of one merged list that another one lacks."""
    found = []
    j = 0
    for start, end in one:
        while j < len(other) and other[j][1] <= start:
            j += 1
        left, at = start, j
        while at < len(other) and other[at][0] < end:
            found.append((left, other[at][0]))
            left, at = other[at][1], at + 1
        found.append((left, end))
    return [span for span in found if span[0] < span[1]]


def length(spans: Iterable[Span]) -> int:
    """Returns the time in all spans together."""
    return sum(end - start for start, end in spans)
