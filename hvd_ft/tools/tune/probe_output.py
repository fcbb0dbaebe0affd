"""The results of `hvdft probe` as a table, CSV lines and a picture."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

from hvd_ft.system.byte_size import short
from hvd_ft.tools.tune.probe import OURS, SHARED, SIDES, Cell, Found, Plan

CSV_COLUMNS = ("by", "side", "threads", "bytes", "round", "messages_per_second")
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MB = 1e6


def table(plan: Plan, found: Found) -> Table:
    """Lays out the medians: a line for each number of threads and size."""
    title = "2 ranks, both directions at once; messages/s and MB/s of both together, medians of "
    laid = Table(title=f"{title}{found.rounds} rounds", title_justify="left")
    for name in ("threads", "bytes"):
        laid.add_column(name, justify="right")
    for by in plan.by:
        of = "" if by == OURS else f"{by}: "
        for side in SIDES:
            laid.add_column(f"{of}{side}, msg/s", justify="right")
            laid.add_column("MB/s", justify="right")
        laid.add_column(f"{of}endpoints/one", justify="right")
    for threads in plan.threads:
        for size in plan.sizes:
            cells = [str(threads), short(size)]
            for by in plan.by:
                for side in SIDES:
                    rate = found.rate(Cell(by, side, threads, size))
                    cells += ["", ""] if rate is None else _rate(rate, size)
                gain = found.gain(by, threads, size)
                cells.append("" if gain is None else f"{gain:.2f}")
            laid.add_row(*cells, end_section=size == plan.sizes[-1])
    return laid


def _rate(rate: float, size: int) -> list[str]:
    return [f"{rate:,.0f}", f"{rate * size / _MB:,.1f}"]


def csv_lines(found: Found) -> list[Sequence[object]]:
    """Returns a line for every round of every cell."""
    return [
        (cell.by, cell.side, cell.threads, cell.bytes, number, f"{rate:.1f}")
        for cell, rates in found.rates.items()
        for number, rate in enumerate(rates)
    ]


def agreement(plan: Plan, found: Found) -> list[str]:
    """Returns lines about how far the referee agrees; none without a referee.

    A side has won only if it is faster in every round; otherwise chance decides which is faster.
    """
    _, *others = plan.by
    cells = [(threads, size) for threads in plan.threads for size in plan.sizes]
    lines = []
    for by in others:
        rates = [[found.rate(Cell(each, SHARED, *cell)) for each in (OURS, by)] for cell in cells]
        factors = [ours / theirs for ours, theirs in rates if ours and theirs]
        if not factors:
            continue
        winners = [{found.winner(each, *cell) for each in (OURS, by)} for cell in cells]
        both = [each for each in winners if "" not in each]
        agreed = sum(len(each) == 1 for each in both)
        lines.append(
            f"{by}: our rates with one endpoint are {min(factors):.2f} to {max(factors):.2f} times "
            f"its; both have a winner of every round in {len(both)} of {len(cells)} cells, the "
            f"same one in {agreed}"
        )
    return lines


def picture(plan: Plan, found: Found) -> Figure:
    """Draws messages per second against bytes, and below how many times as fast endpoints are."""
    figure = Figure(figsize=(8, 7), layout="constrained")
    top, below = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    for threads, colour in zip(plan.threads, _COLOURS * len(plan.threads), strict=False):
        for by in plan.by:
            style = "o" if by == OURS else "x"
            for side in SIDES:
                line = ":" if side == SHARED else "-"
                name = f"{threads} thread{'s' * (threads > 1)}, {side}" + (
                    "" if by == OURS else f", {by}"
                )
                rates = [found.rate(Cell(by, side, threads, size)) for size in plan.sizes]
                _draw(top, plan.sizes, rates, f"{style}{line}", color=colour, label=name)
            gains = [found.gain(by, threads, size) for size in plan.sizes]
            line = "-" if by == OURS else "--"
            _draw(below, plan.sizes, gains, f"{style}{line}", color=colour)
    below.axhline(1, color="black", linewidth=0.8)
    top.set(xscale="log", yscale="log", ylabel="messages/s, both directions",
            title="threads on one endpoint, and on endpoints of their own")  # fmt: skip
    below.set(xlabel="bytes of a message", ylabel="endpoints / one endpoint")
    top.legend(frameon=False, fontsize="small")
    for axes in (top, below):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3)
    return figure


def _draw(
    axes: Axes, sizes: Sequence[int], values: Sequence[float | None], style: str, **how: Any
) -> None:
    known = [(size, value) for size, value in zip(sizes, values, strict=True) if value is not None]
    if known:
        axes.plot(*zip(*known, strict=True), style, markersize=4, **how)
