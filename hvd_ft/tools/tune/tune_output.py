"""The result of `hvdft tune` as a table and a picture."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from rich.table import Table

from hvd_ft.system.byte_size import short
from hvd_ft.tools.tune.search import MARGIN, Comparison
from hvd_ft.tools.tune.tune import Result

_TAKEN, _NOT = "#009E73", "#999999"


def comparisons_table(comparisons: Sequence[Comparison]) -> Table:
    """Lays out the comparisons, one a line."""
    table = Table("setting", "from", "to", title="compared, in this order", title_justify="left")
    for name in ("rounds", "time"):
        table.add_column(name, justify="right")
    table.add_column("")
    for each in comparisons:
        change = f"{each.change:+.1%}" if each.ratios else ""
        verdict = each.why_not or ("taken" if each.taken else "undecided" * each.undecided)
        cells = (each.before or "unset", each.value or "unset", str(len(each.ratios)), change)
        table.add_row(each.knob, *cells, verdict)
    return table


def sizes_table(result: Result) -> Table:
    """Lays out the times of an allreduce with the defaults and with the result."""
    table = Table(title="an allreduce, ms, medians", title_justify="left")
    for name in ("bytes", "defaults", "tuned", "time"):
        table.add_column(name, justify="right")
    for size, (default, tuned) in result.tuning.seconds.items():
        times = (f"{default * 1e3:.3f}", f"{tuned * 1e3:.3f}", f"{tuned / default - 1:+.1%}")
        table.add_row(short(int(size)), *times)
    return table


def picture(
    comparisons: Sequence[Comparison], seconds: Mapping[str, tuple[float, float]]
) -> Figure:
    """Draws every round of every comparison, and the times with the defaults and the result.

    Args:
        comparisons: all comparisons, in order.
        seconds: seconds of an allreduce with the defaults and with the result, by its bytes.
    """
    figure = Figure(figsize=(11, 5), layout="constrained")
    left, right = figure.subplots(1, 2)
    known = [each for each in comparisons if each.ratios]
    for place, each in enumerate(known):
        colour = _TAKEN if each.taken else _NOT
        values = [100 * ratio for ratio in each.ratios]
        left.plot(values, [place] * len(values), ".", color=colour, alpha=0.5)
        left.plot(100 * each.change, place, "D", color=colour)
    left.set_yticks(
        range(len(known)), [f"{each.knob}: {each.before} to {each.value}" for each in known]
    )
    left.invert_yaxis()
    left.axvline(0, color="black", linewidth=0.8)
    left.axvline(-100 * MARGIN, color=_TAKEN, linewidth=0.8, linestyle=":")
    left.set(xlabel="change of the time, % (a point a round)", title="compared (green: taken)")
    sizes = [int(size) for size in seconds]
    for number, (name, style) in enumerate((("defaults", "o:"), ("tuned", "o-"))):
        times = [1e3 * pair[number] for pair in seconds.values()]
        right.plot(sizes, times, style, color=(_NOT, _TAKEN)[number], label=name)
    scale = "log" if sizes else "linear"  # there are no times yet if the search was cut short
    right.set(xscale=scale, yscale=scale, xlabel="bytes", ylabel="ms", title="an allreduce")
    right.legend(frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3)
    return figure
