"""The results of `hvdft bench allreduce` as lines, a CSV file and a picture."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from hvd_ft.tools.bench.allreduce import Plan
from hvd_ft.tools.bench.output import COLOURS
from hvd_ft.tools.bench.series import Row

_WIDTHS = (11, 10, 7, 9, 9, 7, 7, 7, 6, 6)
CSV_COLUMNS = (
    *("bytes", "count", "type", "redop", "mode", "backend", "time_us", "min_time_us"),
    *("algbw_gbs", "busbw_gbs", "wrong", "time_to_ft", "min_time_to_ft"),
)


def header(plan: Plan) -> str:
    """Returns the lines above the rows: what is measured, and columns as nccl-tests has them."""
    title = f"allreduce, {plan.ranks} ranks, {plan.mode}, {plan.dtype} {plan.op}"
    names = ["bytes", "count", "backend", "time", "min", "algbw", "busbw", "#wrong"]
    units = ["", "", "", "us", "us", "GB/s", "GB/s", ""]
    if _others(plan):
        names, units = [*names, "/ft", "of min"], [*units, "", ""]
    return "\n".join([title, "", _columns(names), _columns(units)])


def lines(plan: Plan, row: Row) -> str:
    """Returns the lines of a size, one for each backend; they fit into 100 columns."""
    return "\n".join(_line(plan, row, backend) for backend in plan.backends)


def _line(plan: Plan, row: Row, backend: str) -> str:
    times = row.times[backend]
    cells = [str(row.bytes), str(row.count), backend]
    cells += [f"{times.median * 1e6:.0f}", f"{times.best * 1e6:.0f}"]
    cells += [f"{row.algbw(backend):.3f}", f"{row.busbw(backend):.3f}", str(times.wrong)]
    if backend in _others(plan):
        cells += [f"{ratio:.2f}" for ratio in row.ratio(backend, "ft")]
    return _columns(cells)


def _columns(cells: Sequence[str]) -> str:
    return "  ".join(
        f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=False)
    ).rstrip()


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
