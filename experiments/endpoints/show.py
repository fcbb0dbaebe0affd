"""What is made of the endpoints experiment's rows: a table and a picture."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

COLOURS = {
    "1 ring": "#999999",
    "2 rings": "#56B4E9",
    "4 rings": "#0072B2",
    "8 rings": "#003A5D",
    "2 rings both ways": "#009E73",
    "1 ring 4 MiB segments": "#E69F00",
    "2 connections": "#56B4E9",
    "4 connections": "#0072B2",
    "1 ring one array": "#D55E00",
    "1 ring 2 endpoints": "#CC79A7",
}

Rows = Sequence[Mapping[str, Any]]
Order = Mapping[str, Sequence[str]]


def seconds_of(rows: Rows, cell: str, side: str) -> list[float]:
    """Returns a side's times in the order of its repeats."""
    return [row["seconds"] for row in rows if (row["cell"], row["side"]) == (cell, side)]


def gains(rows: Rows, cell: str, side: str, base: str) -> list[float]:
    """Returns how many times as fast a side is as another, repeat by repeat."""
    pairs = zip(seconds_of(rows, cell, base), seconds_of(rows, cell, side), strict=True)
    return [slow / fast for slow, fast in pairs]


def spread(values: Sequence[float], digits: int) -> str:
    """Returns the median and, in brackets, the least and the most."""
    least, most = min(values), max(values)
    return f"{statistics.median(values):.{digits}f} ({least:.{digits}f} to {most:.{digits}f})"


def table(rows: Rows, order: Order) -> str:
    """Returns times and gains over each cell's first side as a Markdown table.

    Args:
        rows: measured.
        order: the sides of each cell.
    """
    lines = ["| setting | | ms | times as fast | n |", "|---|---|--:|--:|--:|"]
    for cell, sides in order.items():
        for side in sides:
            seconds = seconds_of(rows, cell, side)
            if not seconds:
                continue
            times = spread([1e3 * value for value in seconds], 1)
            gain = spread(gains(rows, cell, side, sides[0]), 2) if side != sides[0] else ""
            name = cell if side == sides[0] else ""
            lines.append(f"| {name} | {side} | {times} | {gain} | {len(seconds)} |")
    return "\n".join(lines)


def plot(rows: Rows, order: Order) -> Figure:
    """Draws for each cell how many times as fast each side is as the first one.

    Args:
        rows: measured.
        order: the sides of each cell.
    """
    measured = {cell: sides for cell, sides in order.items() if seconds_of(rows, cell, sides[0])}
    figure = Figure(figsize=(9, 1.5 + 0.75 * len(measured)), layout="constrained")
    axes = figure.add_subplot()
    for place, (cell, sides) in enumerate(measured.items()):
        for number, side in enumerate(sides[1:]):
            at = place + 0.8 * (number + 0.5) / (len(sides) - 1) - 0.4
            values = gains(rows, cell, side, sides[0])
            height = 0.7 / (len(sides) - 1)
            axes.barh(at, statistics.median(values), height, color=COLOURS[side])
            axes.plot(values, [at] * len(values), "k.", markersize=3)
    axes.set_yticks(range(len(measured)), list(measured))
    axes.invert_yaxis()
    axes.axvline(1, color="k", linewidth=0.8)
    axes.axvline(1.3, color="k", linewidth=0.8, linestyle=":")
    axes.set_xlabel("times as fast as one ring; dots: repeats, dotted: 1.3")
    axes.spines[["top", "right"]].set_visible(False)
    used = {side for sides in measured.values() for side in sides[1:]}
    for side, colour in COLOURS.items():
        if side in used:
            axes.barh(0, 0, color=colour, label=side)
    axes.legend(loc="lower right", fontsize="small")
    return figure
