"""How late each rank of a node came to an op, by the node's own clock. Pure.

An op begins when the last rank has announced its tensors. A rank is as late as its script handed
its tensors over after the first one's, and after the median of the node's ranks: these moments are
those of one clock, and no other node's news are part of them. From then until the op began it
waited for later ranks. A script that computes on while an op is agreed may have handed over tensors
of later ops meanwhile, and then counts as later than it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean, median

from hvd_ft.native.types import OpMoments
from hvd_ft.status.snapshot import Lateness, OpLateness

_NS = 1e9


def of_op(op: int, ranks: Mapping[int, Mapping[int, OpMoments]]) -> list[OpLateness]:
    """Returns how late ranks came to an op, by rank; those that have not begun it are left out.

    Args:
        op: its id.
        ranks: the moments of the latest ops of each rank of a node, by rank and op.
    """
    found = {rank: own[op] for rank, own in ranks.items() if op in own and own[op].handed_ns}
    if not found:
        return []
    handed = [each.handed_ns for each in found.values()]
    first, middle = min(handed), median(handed)
    return [
        OpLateness(
            rank=rank,
            after_first_seconds=(each.handed_ns - first) / _NS,
            after_median_seconds=(each.handed_ns - middle) / _NS,
            waited_seconds=(each.begun_ns - each.handed_ns) / _NS,
            under_way_seconds=(each.done_ns - each.begun_ns) / _NS if each.done_ns else None,
        )
        for rank, each in sorted(found.items())
    ]


def of_ranks(ranks: Mapping[int, Mapping[int, OpMoments]]) -> dict[int, Lateness]:
    """Returns how late each rank came to the latest ops that all ranks of its node have begun.

    Args:
        ranks: the moments of the latest ops of each rank of a node, by rank and op.
    """
    common = set.intersection(*(set(own) for own in ranks.values())) if ranks else set()
    ops = [found for op in common if len(found := of_op(op, ranks)) == len(ranks)]
    if not ops or len(ranks) < 2:
        return {}
    means = {}
    for late in zip(*ops, strict=True):
        means[late[0].rank] = Lateness(
            ops=len(ops),
            after_first_seconds=fmean(each.after_first_seconds for each in late),
            after_median_seconds=fmean(each.after_median_seconds for each in late),
            waited_seconds=fmean(each.waited_seconds for each in late),
        )
    return means
