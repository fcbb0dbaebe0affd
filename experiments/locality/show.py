"""What is made of the locality experiment's rows: a table and a picture."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from experiments.locality.placements import ROUND_ROBIN, parse
from experiments.locality.predictions import Verdict, verdicts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from experiments.locality.run import Row

COLOURS = {
    "serial": "#D55E00",
    "irecv_send_wait": "#E69F00",
    "threads": "#56B4E9",
    "endpoints": "#0072B2",
    "one endpoint": "#CC79A7",
    "by host": "#882255",
    "hierarchical": "#009E73",
    "mpi": "#999999",
}
HATCHES = ("", "//", "..", "xx", "\\\\")
# More than this share of the machine went to others (the kernel's network is a part of that).
BUSY = 0.4

# Where the links are the limit, and not the CPUs that all nodes share.
PREDICTED_RATE = "50mbit"

UNLIMITED = "none"
BLOCKING_AND_OTHERS = ("serial", "irecv_send_wait", "one endpoint", "hierarchical")

Key = tuple[str, str, str, int, str]


def groups(rows: Sequence[Row]) -> dict[Key, list[Row]]:
    """Returns the rows of each side by part, rate, placement and size."""
    found: dict[Key, list[Row]] = {}
    for row in rows:
        key = (row.part, row.rate, row.placement, row.bytes, row.side)
        found.setdefault(key, []).append(row)
    return found


def is_busy(rows: Sequence[Row]) -> bool:
    """Returns whether the machine had too much else to do."""
    share = [row.others / row.seconds / (os.cpu_count() or 1) for row in rows]
    return statistics.median(share) > BUSY


def table(rows: Sequence[Row]) -> str:
    """Returns medians and spread as a Markdown table; `*`: the machine was busy."""
    lines = ["| rate | placement | bytes | side | seconds | CPU seconds | others' | n |"]
    lines.append("|---" * 8 + "|")
    for (_, rate, placement, size, side), own in groups(rows).items():
        seconds = [row.seconds for row in own]
        spread = f"{statistics.median(seconds):.4f} ({min(seconds):.4f} to {max(seconds):.4f})"
        cpu, others = (statistics.median(getattr(row, k) for row in own) for k in ("cpu", "others"))
        mark = "*" if is_busy(own) else ""
        lines.append(
            f"| {rate} | {placement} | {size} | {side} | {spread}{mark} | {cpu:.3f} | "
            f"{others:.3f} | {len(own)} |"
        )
    return "\n".join(lines)


def placements_table(rows: Sequence[Row]) -> str:
    """Returns what became of the predictions in each turn, as a Markdown table."""
    turns: dict[int, dict[tuple[int, str, str], list[float]]] = {}
    for row in rows:
        if row.part == "placements" and row.rate == PREDICTED_RATE:
            key = (row.bytes, row.side, row.placement)
            turns.setdefault(row.turn, {}).setdefault(key, []).append(row.seconds)
    found: dict[tuple[int, str, str], list[Verdict]] = {}
    for seconds in turns.values():
        for v in verdicts(seconds):
            found.setdefault((v.size, v.side, v.placement), []).append(v)
    lines = [
        "| bytes | side | placement | times that of 4-2-2, in each turn | predicted | held |",
        "|---" * 6 + "|",
    ]
    for (size, side, placement), own in found.items():
        held = f"{sum(v.held for v in own)} of {len(own)}"
        mark = held if all(v.held for v in own) else f"**{held}**"
        ratios = ", ".join(f"{v.ratio:.2f}" for v in own)
        bounds = f"{own[0].least:g} to {own[0].most:g}"
        lines.append(f"| {size} | {side} | {placement} | {ratios} | {bounds} | {mark} |")
    return "\n".join(lines)


def plot(rows: Sequence[Row]) -> Figure:
    """Draws the part `links`: for each rate both placements."""
    links = [row for row in rows if row.part == "links"]
    panels = {
        _named(rate): [row for row in links if row.rate == rate]
        for rate in dict.fromkeys(row.rate for row in links)
    }
    return _draw(panels, ["4-2-2", "4-3-1"], "64 MB, 8 ranks")


def plot_placements(rows: Sequence[Row]) -> Figure:
    """Draws the part `placements` on limited links: for each rate and size all of them."""
    return _draw_placements([row for row in rows if row.rate != UNLIMITED])


def plot_unlimited(rows: Sequence[Row]) -> Figure:
    """Draws the part `placements` on unlimited links, those first that use the network at once."""
    own = [row for row in rows if row.rate == UNLIMITED and row.side in BLOCKING_AND_OTHERS]

    def place(row: Row) -> tuple[bool, bool]:
        return row.placement.startswith(ROUND_ROBIN), not parse(row.placement).crosses_at_once

    return _draw_placements(sorted(own, key=place))


def _draw_placements(rows: Sequence[Row]) -> Figure:
    part = [row for row in rows if row.part == "placements"]
    panels = {
        f"{size / 1e6:g} MB, {_named(rate)}": [r for r in part if (r.rate, r.bytes) == (rate, size)]
        for rate, size in dict.fromkeys((row.rate, row.bytes) for row in part)
    }
    return _draw(panels, list(dict.fromkeys(row.placement for row in part)), "8 ranks")


def _named(rate: str) -> str:
    return "unlimited" if rate == UNLIMITED else rate


def _draw(panels: Mapping[str, Sequence[Row]], placements: Sequence[str], what: str) -> Figure:
    """Draws panels side by side: medians as bars, every measurement as a point.

    Args:
        panels: rows by title.
        placements: the bars of a side, from left to right.
        what: the title's beginning.
    """
    figure = Figure(figsize=(5.5 * max(len(panels), 1), 4.4), layout="constrained")
    for place, (title, rows) in enumerate(panels.items()):
        axes = figure.add_subplot(1, len(panels), place + 1)
        _panel(axes, rows, placements)
        axes.set_title(title)
        axes.set_ylabel("seconds" if place == 0 else "")
    order = ", ".join(placements)
    heading = f"{what}; number of measurements below; bars from left to right:\n{order}"
    figure.suptitle(heading, fontsize="medium")
    return figure


def _panel(axes: Axes, rows: Sequence[Row], placements: Sequence[str]) -> None:
    """Draws one panel; several times the longest bar, an MPI that stood still, is a number."""
    sides = [side for side in COLOURS if any(row.side == side for row in rows)]
    width = 0.8 / max(len(placements), 1)
    bars, points = [0.0], []
    for i, side in enumerate(sides):
        for j, placement in enumerate(placements):
            own = [r.seconds for r in rows if (r.side, r.placement) == (side, placement)]
            if not own:
                continue
            at = i + width * (j - (len(placements) - 1) / 2)
            axes.bar(at, statistics.median(own), 0.9 * width, color=COLOURS[side],
                     hatch=HATCHES[j % len(HATCHES)], edgecolor="white", linewidth=0)  # fmt: skip
            axes.text(at, 0, f"{len(own)}", ha="center", va="bottom", fontsize=5)
            axes.plot([at] * len(own), own, "k.", markersize=3)
            bars.append(statistics.median(own))
            points += [(at, seconds) for seconds in own]
    top = min(3 * max(bars), 1.05 * max((seconds for _, seconds in points), default=1.0))
    axes.set_ylim(0, top)
    for at, seconds in points:
        if seconds > top:
            axes.text(at, top, f"↑ {seconds:.0f} s", ha="center")
    axes.set_xticks(range(len(sides)), sides, rotation=30, ha="right")
    axes.spines[["top", "right"]].set_visible(False)
