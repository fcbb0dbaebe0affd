"""The results of `hvdft bench training` as tables, a CSV file and a picture."""

import statistics
from collections.abc import Sequence

from matplotlib.figure import Figure
from rich.table import Table

from hvd_ft.tools.bench.output import COLOURS
from hvd_ft.tools.bench.training import Plan, Result

CSV_COLUMNS = ("model", "run", "backend", "round", "seconds", "images_per_second")
_MB = 1e6


def throughput_table(plan: Plan, results: Sequence[Result]) -> Table:
    """Lays out images per second, a line for each model and backend."""
    title = f"training, {plan.ranks} ranks; images/s, median (slowest to fastest round)"
    table = Table("model", "gradients", "backend", title=title, title_justify="left")
    for name in ("images/s", "ft's to it", "a worker, resident"):
        table.add_column(name, justify="right")
    for result in results:
        for name in plan.backends:
            first, last = name == plan.backends[0], name == plan.backends[-1]
            ratio = f"{result.ratio(name):.2f}" if name != "ft" and "ft" in plan.backends else ""
            table.add_row(
                result.model if first else "",
                f"{result.gradient_bytes / _MB:.1f} MB" if first else "",
                name,
                _spread(result.images_per_second(name)),
                ratio,
                _mb(result.worker_bytes[name]),
                end_section=last,
            )
    return table


def failure_table(plan: Plan, results: Sequence[Result]) -> Table:
    """Lays out what a kill costs and what memory was in use, a column for each model."""
    table = Table(title="one rank killed in mid-training, on ft", title_justify="left")
    table.add_column("")
    for result in results:
        table.add_column(result.model, justify="right")
    for name, cells in (
        ("seconds, undisturbed", [_spread(result.undisturbed) for result in results]),
        ("seconds, one kill", [_spread(result.killed) for result in results]),
        ("lost by the kill", [f"{result.lost_seconds:.2f}" for result in results]),
        ("arena in use, most", [_mb(result.arena_bytes) for result in results]),
        (
            f"bound: 2·gradients·{plan.snapshot_steps} + snapshots",
            [_mb(result.arena_bound_bytes) for result in results],
        ),
        ("agent and shim, most", [_mb(result.agent_bytes) for result in results]),
    ):
        table.add_row(name, *cells)
    return table


def csv_lines(results: Sequence[Result]) -> list[list[object]]:
    """Returns a line for every round of every run."""
    lines: list[list[object]] = []
    for result in results:
        runs = {("throughput", name): own for name, own in result.seconds.items()}
        runs |= {("undisturbed", "ft"): result.undisturbed, ("one kill", "ft"): result.killed}
        for (run, backend), times in runs.items():
            for number, seconds in enumerate(times):
                speed = f"{result.images / seconds:.2f}"
                lines.append([result.model, run, backend, number, f"{seconds:.4f}", speed])
    return lines


def picture(plan: Plan, results: Sequence[Result]) -> Figure:
    """Draws medians as bars and every round as a point, for each model."""
    figure = Figure(figsize=(4 * len(results), 4), layout="constrained")
    for axes, result in zip(figure.subplots(1, len(results), squeeze=False)[0], results,
                            strict=True):  # fmt: skip
        for place, name in enumerate(plan.backends):
            own = result.images_per_second(name)
            axes.bar(place, statistics.median(own), 0.6, color=COLOURS[name])
            axes.plot([place] * len(own), own, "k.", markersize=5)
        axes.set_xticks(range(len(plan.backends)), plan.backends)
        axes.set(title=result.model, ylabel="images/s")
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def _mb(count: int) -> str:
    return f"{count / _MB:.0f} MB"
