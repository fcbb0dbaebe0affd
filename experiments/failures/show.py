"""The pictures of the experiment: see run.py."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.failures.model import total_seconds
from experiments.sides import SIDES, Side

Row = Mapping[str, str]


def sides_of(rows: Sequence[Row]) -> Iterator[tuple[Side, list[Row]]]:
    """Yields each side that has rows, with these."""
    for side in SIDES.values():
        if own := [row for row in rows if row["side"] == side.name]:
            yield side, own


def plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)


def losses(rows: Sequence[Row]) -> Figure:
    """Draws what a kill has cost each side: the median, and every one as a point."""
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.add_subplot()
    labels = []
    for place, (side, own) in enumerate(sides_of(rows)):
        seconds = [float(row["lost_s"]) for row in own]
        median = statistics.median(seconds)
        axes.bar(place, median, 0.6, color=side.colour)
        axes.plot([place] * len(seconds), seconds, "k.", markersize=5)
        axes.annotate(f"{median:.1f} s", (place, median), ha="center", va="bottom")
        labels.append(side.label)
    axes.set_xticks(range(len(labels)), labels, fontsize=8)
    axes.set_ylabel("seconds without a new step, per kill")
    plain(axes)
    return figure


def totals(results: Sequence[Row], lost: Sequence[Row]) -> Figure:
    """Draws total time against the rate of kills: measured points, and the model's curves."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    limit = max(float(row["seconds"]) for row in results)
    most = max((60 / float(row["every"]) for row in results if float(row["every"])), default=1.0)
    rates = np.linspace(0.01, 1.1 * most, 400)
    for side, own in sides_of(results):
        for ended, marker in (("1", "o"), ("0", "^")):
            points = [row for row in own if row["ended"] == ended]
            at = [60 / float(row["every"]) if float(row["every"]) else 0.0 for row in points]
            axes.plot(at, [float(row["seconds"]) for row in points], marker, color=side.colour)
        label = " ".join(side.label.split())
        work = [float(row["seconds"]) for row in own if not float(row["every"])]
        costs = [float(row["lost_s"]) for row in lost if row["side"] == side.name]
        if work and costs:
            cost = statistics.median(costs)
            curve = [total_seconds(statistics.median(work), 60 / rate, cost) for rate in rates]
            shown = [each if each <= 1.1 * limit else math.nan for each in curve]
            axes.plot(rates, shown, color=side.colour, label=f"{label}: {cost:.1f} s per kill")
        else:
            axes.plot([], [], color=side.colour, label=label)
    axes.set(xlabel="kills a minute", ylabel="seconds until the training is complete")
    axes.set_ylim(0, 1.1 * limit)
    axes.set_title("points: measured (triangles: not complete by then); lines: model", fontsize=9)
    axes.legend(frameon=False, fontsize=8)
    plain(axes)
    return figure


def memory(rows: Sequence[Row]) -> Figure:
    """Draws all processes' memory over time, of a training without kills and of one with them."""
    kinds = sorted({float(row["every"]) for row in rows})
    kinds = [kinds[0], kinds[len(kinds) // 2]] if len(kinds) > 1 else kinds
    figure = Figure(figsize=(10, 4), layout="constrained")
    for axes, every in zip(
        figure.subplots(1, len(kinds), squeeze=False, sharey=True)[0], kinds, strict=True
    ):
        for side, own in sides_of([row for row in rows if float(row["every"]) == every]):
            # Of several trainings the first: time begins anew with each.
            seconds = [float(row["second"]) for row in own]
            end = next((i for i in range(1, len(own)) if seconds[i] < seconds[i - 1]), len(own))
            mib = [float(row["mib"]) for row in own]
            axes.plot(seconds[:end], mib[:end], color=side.colour, label=side.label)
        axes.set_title(f"a kill every {every:g} s" if every else "no kill")
        axes.set_xlabel("seconds")
        plain(axes)
    figure.axes[0].set_ylabel("MiB of all processes together")
    figure.axes[0].set_ylim(0, None)
    figure.axes[0].legend(frameon=False, fontsize=8)
    return figure
