"""The single ops of a report as spans on lanes, for its trace. Pure.

Ops of a rank may be under way together, and spans of one lane of a trace must not overlap. So an op
is on the first lane that is free when its tensors were handed over. A node receives the ring's ops
one after the other, so one lane is enough for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hvd_ft.reports.facts import OpsFacts
from hvd_ft.reports.spans import Span


@dataclass(frozen=True)
class OpSpan:
    """A part of an op on a rank.

    Attributes:
        rank: the rank.
        lane: of the rank; 0 is the first one.
        name: the part, with the op's number.
        times: CLOCK_MONOTONIC, in ns.
        args: for who clicks on it.
    """

    rank: int
    lane: int
    name: str
    times: Span
    args: dict[str, Any]


def op_spans(lines: Iterable[OpsFacts], begin_ns: int) -> list[OpSpan]:
    """Returns the parts of all ops: wait, contribute, result; each op of a rank once.

    Args:
        lines: of the report.
        begin_ns: the trace's begin; nothing is before it.
    """
    lanes: dict[int, list[int]] = {}  # by rank: the end of what is on each lane
    spans = []
    for (rank, op), (incarnation, parts) in _in_order(lines, begin_ns, "contribute", "result"):
        ends = lanes.setdefault(rank, [])
        start, end = parts[0][1][0], parts[-1][1][1]
        lane = next((n for n, taken in enumerate(ends) if taken <= start), len(ends))
        ends[lane : lane + 1] = [end]
        args = {"op": op, "incarnation": incarnation}
        spans += [OpSpan(rank, lane, name, times, args) for name, times in parts]
    return spans


def ring_spans(lines: Iterable[OpsFacts], begin_ns: int) -> list[OpSpan]:
    """Returns the phases of all ops in the ring: reduce-scatter, all-gather; each of a node once.

    Args:
        lines: of the report, about the ring.
        begin_ns: the trace's begin; nothing is before it.
    """
    ends: dict[int, int] = {}  # by rank
    spans = []
    for (rank, op), (_, parts) in _in_order(lines, begin_ns, "reduce-scatter", "all-gather"):
        for name, (start, end) in parts:
            free = max(start, ends.get(rank, start))
            ends[rank] = max(free, end)
            spans.append(OpSpan(rank, 0, name, (free, ends[rank]), {"op": op}))
    return spans


_Parts = list[tuple[str, Span]]


def _in_order(
    lines: Iterable[OpsFacts], begin_ns: int, first: str, second: str
) -> list[tuple[tuple[int, int], tuple[int, _Parts]]]:
    """Returns the parts of all ops with their incarnation, by rank and op, in the order of time.

    Args:
        lines: of the report.
        begin_ns: the trace's begin.
        first: what an op does until its second moment.
        second: what it does then.
    """
    ops: dict[tuple[int, int], tuple[int, _Parts]] = {}
    for line in lines:
        for each in line.ops:
            begun = max(line.time_ns + each.begun, begin_ns)
            handed = max(begun - (each.wait or 0), begin_ns)
            done = begun + each.done
            parts = [(f"wait for op {each.op}", (handed, begun))] if each.wait is not None else []
            if each.contributed is None:
                parts.append((f"op {each.op}", (begun, done)))
            else:
                contributed = min(begun + each.contributed, done)
                parts.append((f"op {each.op}: {first}", (begun, contributed)))
                parts.append((f"op {each.op}: {second}", (contributed, done)))
            ops.setdefault((line.rank, each.op), (line.incarnation, parts))
    return sorted(ops.items(), key=lambda item: (item[0][0], item[1][1][0][1][0], item[0][1]))
