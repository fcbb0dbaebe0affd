"""The results of `hvdft bench allreduce` as a table, a CSV file and a picture."""

from collections.abc import Sequence

from matplotlib.figure import Figure
from rich.table import Table

from hvd_ft.tools.bench.allreduce import Plan
from hvd_ft.tools.bench.output import COLOURS
from hvd_ft.tools.bench.series import Row

CSV_COLUMNS = (
    *("bytes", "count", "type", "redop", "mode", "backend", "time_us", "min_time_us"),
    *("algbw_gbs", "busbw_gbs", "wrong", "time_to_ft", "min_time_to_ft"),
)


def table(plan: Plan, rows: Sequence[Row]) -> Table:
    """Lays out the rows as nccl-tests does, a group of columns for each backend."""
    title = f"allreduce, {plan.ranks} ranks, {plan.mode}; times in us, bandwidths in GB/s"
    laid = Table(title=title, title_justify="left")
    for name in ("bytes", "count", "type", "redop"):
        laid.add_column(name, justify="right", no_wrap=True)
    for backend in plan.backends:
        for name in (f"{backend} time", "min", "algbw", "busbw", "#wrong"):
            laid.add_column(name, justify="right", no_wrap=True)
    for backend in _others(plan):
        for name in (f"{backend}/ft", "of min"):
            laid.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        cells = [str(row.bytes), str(row.count), plan.dtype, plan.op]
        for backend in plan.backends:
            times = row.times[backend]
            cells += [f"{times.median * 1e6:.0f}", f"{times.best * 1e6:.0f}"]
            cells += [f"{row.algbw(backend):.3f}", f"{row.busbw(backend):.3f}", str(times.wrong)]
        for backend in _others(plan):
            cells += [f"{ratio:.2f}" for ratio in row.ratio(backend, "ft")]
        laid.add_row(*cells)
    return laid


def line(plan: Plan, row: Row) -> str:
    """Describes a row in words."""
    times = (f"{name} {row.times[name].median * 1e6:.0f} us" for name in plan.backends)
    return f"{row.bytes} bytes: {', '.join(times)}"


def csv_lines(plan: Plan, rows: Sequence[Row]) -> list[list[object]]:
    """Returns a line for every size and backend."""
    return [_csv_line(plan, row, backend) for row in rows for backend in plan.backends]


def _csv_line(plan: Plan, row: Row, backend: str) -> list[object]:
    times = row.times[backend]
    to_ft: Sequence[object] = ("", "")
    if "ft" in row.times:
        to_ft = [f"{ratio:.3f}" for ratio in row.ratio(backend, "ft")]
    return [
        *(row.bytes, row.count, plan.dtype, plan.op, plan.mode, backend),
        *(f"{times.median * 1e6:.1f}", f"{times.best * 1e6:.1f}"),
        *(f"{row.algbw(backend):.4f}", f"{row.busbw(backend):.4f}", times.wrong, *to_ft),
    ]


def picture(plan: Plan, rows: Sequence[Row]) -> Figure:
    """Draws time against bytes for each backend, and the ratio of each one's time to ft's."""
    figure = Figure(figsize=(8, 6), layout="constrained")
    top, below = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    place = [row.bytes for row in rows]
    for backend in plan.backends:
        times = [row.times[backend] for row in rows]
        colour = COLOURS[backend]
        top.plot(place, [t.median * 1e6 for t in times], "o-", color=colour, label=backend)
        top.plot(place, [t.best * 1e6 for t in times], ":", color=colour, label=f"{backend}, best")
    for backend in _others(plan):
        ratios = [row.ratio(backend, "ft")[0] for row in rows]
        below.plot(place, ratios, "o-", color=COLOURS[backend])
    below.axhline(1, color="black", linewidth=0.8)
    top.set(xscale="log", yscale="log", ylabel="microseconds", title=f"allreduce, {plan.ranks} "
            f"ranks, {plan.dtype} {plan.op}, {plan.mode}")  # fmt: skip
    below.set(xlabel="bytes", ylabel="time to ft's")
    top.legend(frameon=False)
    for axes in (top, below):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3)
    return figure


def _others(plan: Plan) -> list[str]:
    return [name for name in plan.backends if name != "ft"] if "ft" in plan.backends else []
