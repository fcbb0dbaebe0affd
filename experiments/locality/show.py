"""What is made of the locality experiment's rows: a table and a picture."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

if TYPE_CHECKING:
    from experiments.locality.run import Row

COLOURS = {
    "serial": "#D55E00",
    "irecv_send_wait": "#E69F00",
    "threads": "#56B4E9",
    "endpoints": "#0072B2",
    "one endpoint": "#CC79A7",
    "hierarchical": "#009E73",
    "mpi": "#999999",
}
# More than this share of the machine went to others (the kernel's network is a part of that).
BUSY = 0.4

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


def plot(rows: Sequence[Row]) -> Figure:
    """Draws for each rate both placements: medians as bars, every measurement as a point.

    A measurement of several times the longest bar, an MPI that stood still, is a number on top.
    """
    links = [row for row in rows if row.part == "links"]
    rates = list(dict.fromkeys(row.rate for row in links))
    figure = Figure(figsize=(4.5 * max(len(rates), 1), 4), layout="constrained")
    for place, rate in enumerate(rates):
        axes = figure.add_subplot(1, len(rates), place + 1)
        bars, points = [], []
        for i, (side, colour) in enumerate(COLOURS.items()):
            for j, placement in enumerate(("4-2-2", "4-3-1")):
                own = [r.seconds for r in links if (r.rate, r.side, r.placement) ==
                       (rate, side, placement)]  # fmt: skip
                if not own:
                    continue
                at = i + 0.4 * j - 0.2
                axes.bar(at, statistics.median(own), 0.36, color=colour, hatch="//" * j,
                         edgecolor="white", linewidth=0)  # fmt: skip
                axes.plot([at] * len(own), own, "k.", markersize=4)
                bars.append(statistics.median(own))
                points += [(at, seconds) for seconds in own]
        top = min(3 * max(bars), 1.05 * max(seconds for _, seconds in points))
        axes.set_ylim(0, top)
        for at, seconds in points:
            if seconds > top:
                axes.text(at, top, f"↑ {seconds:.0f} s", ha="center")
        axes.set_xticks(range(len(COLOURS)), list(COLOURS), rotation=30, ha="right")
        axes.set_title({"none": "unlimited"}.get(rate, rate))
        axes.set_ylabel("seconds" if place == 0 else "")
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle("64 MB, 8 ranks; left bars 4-2-2, hatched 4-3-1")
    return figure
