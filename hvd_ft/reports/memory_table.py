"""The memory of a job's nodes as a table, beside what stock Horovod would have taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from hvd_ft.reports.facts import Facts, RankFacts
from hvd_ft.system.wire import convert

_MIB = 1 << 20
_PARTS = {  # heading: field of native.types.Memory
    "shared state": "shared_state",
    "own state": "private_state",
    "log": "heap",
    "messages": "messages",
    "input areas": "input_areas",
    "control": "control",
    "most": "total",
    "limit": "limit",
}


def memory_table(facts: Mapping[str, Any]) -> Table | None:
    """Lays out the most memory that each node has used, one node per row.

    Args:
        facts: the facts of a report.

    Returns:
        The table; None if the report lacks these facts, because the job has not ended or the
        version is older.
    """
    of: Facts = convert({**facts}, Facts)
    if not of.nodes:
        return None
    title = "Memory of each node in MiB, the most of each part"
    # Without lines between columns it has room on a terminal of 80 columns.
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column("ranks")
    for heading in (*_PARTS, "stock Horovod"):
        table.add_column(heading, justify="right")
    firsts = [node.first_rank for node in of.nodes]
    for node, (first, end) in zip(of.nodes, pairwise([*firsts, len(of.ranks)]), strict=True):
        stock = stock_bytes(of.ranks[first:end], of.fusion_threshold)
        table.add_row(
            str(first) if end == first + 1 else f"{first}-{end - 1}",
            *(_cell(getattr(node.most, name)) for name in _PARTS.values()),
            _cell(stock),
        )
    return table


def stock_bytes(ranks: Sequence[RankFacts], fusion_threshold: int) -> int:
    """Returns the memory that stock Horovod would have taken for these ranks.

    Each of its processes keeps a fusion buffer, from the first fused operation on, and the results
    of a step in tensors of its own. (With hvd_ft results lie in the log.)

    Args:
        ranks: the ranks' facts, from a report.
        fusion_threshold: bytes of the fusion buffer.
    """
    return sum(fusion_threshold + rank.step_bytes for rank in ranks if rank.step_bytes)


def _cell(size: int) -> str:
    return f"{size / _MIB:.1f}" if size < 100 * _MIB else f"{size / _MIB:.0f}"
