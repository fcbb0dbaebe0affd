"""Fits the model to what was measured, prints how wrong it is elsewhere, and extrapolates.

Reads results.csv, writes model.png; README.md tells what is what.
Example: .venv/bin/python -m experiments.locality.predict
"""

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from experiments.common import add_output, end_with
from experiments.locality import extrapolate, fit
from experiments.locality.extrapolate import RDMA, TCP, large_ring_seconds
from experiments.locality.ring_model import Machine
from experiments.locality.run import HERE, read_csv
from experiments.locality.show import COLOURS
from hvd_ft.errors import HvdFtError

NODES = (4, 16, 128, 1024)
RANKS_OF_A_NODE = 8
SIZES = (1e6, 1e8)
NETWORKS = {"RDMA": RDMA, "TCP": TCP}
# Patterns of rings: nodes of eight ranks, one after the other or dealt in turn, one rank alone, and
# one rank a node.
IN_ORDER, DEALT = (0,) * 8 + (1,) * 8, (0, 1) * 8
ALONE, OF_NODES = (*IN_ORDER[:-1], 2), (0, 1, 2, 3)
# Measured (experiments/recovery_time, lost_host); a job's restart is assumed, as is a checkpoint.
DEATHS = {"worker, warm spare": 0.87, "worker": 3.48, "agent": 2.8, "host, spare host": 18.6}
RESTART_SECONDS, CHECKPOINT_SECONDS = 120.0, 30.0
YEARS_OF_A_NODE = (1, 5)
_YEAR = 365.25 * 86400


def lines_of(header: str, rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields a Markdown table."""
    yield f"| {header} |"
    yield "|---" * (header.count("|") + 1) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def errors(machine: Machine, cells: Sequence[fit.Measured]) -> Iterator[str]:
    """Yields the table of the model's errors, and what they come to."""
    rows, judged, medians = [], [], []
    for cell in cells:
        model = fit.predicted(machine, cell)
        wrong = model / cell.seconds - 1
        kind = "fitted" if cell.fits else "judged"
        if not cell.limited_by_links:
            kind = "CPUs are the limit"
        elif not cell.fits:
            judged.append(abs(wrong))
            medians.append(abs(model / cell.median - 1))
        seconds = f"{cell.seconds:.3f}", f"{cell.median:.3f}", f"{model:.3f}", f"{wrong:+.1%}"
        what = cell.rate, f"{cell.size / 1e6:g} MB", cell.side, cell.placement
        rows.append((*what, *seconds, kind))
    header = "rate | size | side | placement | fastest | median | model | error | "
    yield from lines_of(header, rows)
    for name, own in (("the fastest", judged), ("medians", medians)):
        within = sum(wrong <= 0.1 for wrong in own)
        yield (
            f"\njudged against {name}: {len(own)} cells, {within} of them within 10 %, median "
            f"error {statistics.median(own):.1%}, worst {max(own):.1%}"
        )


def worst(machine: Machine, cells: Sequence[fit.Measured]) -> Iterator[str]:
    """Yields for each rate and size the judged cell of which the model is furthest off."""
    judged: dict[tuple[str, str], list[tuple[float, fit.Measured]]] = {}
    for cell in cells:
        if cell.limited_by_links and not cell.fits:
            key = (cell.rate, f"{cell.size / 1e6:g} MB")
            judged.setdefault(key, []).append((fit.error(machine, cell), cell))
    rows = []
    for key, own in judged.items():
        wrong, cell = max(own, key=lambda item: abs(item[0]))
        middle = statistics.median(abs(error) for error, _ in own)
        seconds = f"{cell.seconds:.3f}", f"{fit.predicted(machine, cell):.3f}"
        name = f"`{cell.side}`, {cell.placement}"
        rows.append((*key, f"{len(own)}", f"{middle:.1%}", name, *seconds, f"{wrong:+.1%}"))
    yield "\nthe largest errors of cells that were not fitted:\n"
    header = "links | bytes | cells | median error | worst cell | fastest, s | model, s | error"
    yield from lines_of(header, rows)


def per_node(size: float) -> Iterator[str]:
    """Yields what flat rings and a ring of nodes take, by the number of nodes."""
    for name, machine in NETWORKS.items():
        rows = []
        for nodes in NODES:
            ranks = nodes * RANKS_OF_A_NODE
            flat = [
                large_ring_seconds(machine, side, pattern, ranks, size)
                for side, pattern in (
                    ("endpoints", IN_ORDER), ("endpoints", DEALT),
                    ("serial", IN_ORDER), ("serial", ALONE),
                )
            ]  # fmt: skip
            ring = [
                large_ring_seconds(machine, side, OF_NODES, nodes, size, rings=rings)
                for side, rings in (("one endpoint", 1), ("endpoints", 1), ("endpoints", 4))
            ]
            tree = extrapolate.halving_seconds(machine, nodes, size)
            rows.append((f"{nodes}", *(f"{1e3 * t:.4g}" for t in (*flat, *ring, tree))))
        yield f"\n{name}, {size / 1e6:g} MB, ms:\n"
        yield from lines_of(
            "nodes | flat | flat, dealt in turn | flat `serial` | the same, a rank alone | "
            "ring of nodes, 1 endpoint | 2 endpoints | 4 rings of 2 | tree",
            rows,
        )


def megabytes(size: float) -> str:
    """Returns a size in MB; what is beyond any array is never."""
    return f"{size / 1e6:.3g}" if size < 1e12 else "never"


def level() -> Iterator[str]:
    """Yields the sizes from which on a ring of nodes is no slower than a tree."""
    rows = [
        (name, *(megabytes(extrapolate.ring_is_level_at(machine, n)) for n in NODES))
        for name, machine in NETWORKS.items()
    ]
    yield "\nMB from which on a ring of so many nodes is at most 10 % slower than a tree:\n"
    yield from lines_of("network | " + " | ".join(map(str, NODES)), rows)


def deaths(nodes: int = 1024) -> Iterator[str]:
    """Yields which share of the time deaths cost."""
    rows = []
    for years in YEARS_OF_A_NODE:
        between = years * _YEAR / nodes
        ours = [f"{extrapolate.lost_to_deaths(between, each):.3%}" for each in DEATHS.values()]
        restart = extrapolate.lost_to_restarts(between, RESTART_SECONDS, CHECKPOINT_SECONDS)
        rows.append((f"{years} years", f"{between / 3600:.1f} h", *ours, f"{restart:.1%}"))
    yield f"\n{nodes} nodes, share of the time that is lost if all deaths are of one kind:\n"
    kinds = " | ".join(f"{kind} ({seconds:g} s)" for kind, seconds in DEATHS.items())
    yield from lines_of(f"a node's time between deaths | the job's | {kinds} | restart", rows)


def picture(machine: Machine, cells: Sequence[fit.Measured]) -> Figure:
    """Draws model against measurement, and rings of nodes at 100 Gbit/s."""
    figure = Figure(figsize=(13, 4.4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for side, colour in COLOURS.items():
        own = [cell for cell in cells if cell.side == side and cell.limited_by_links]
        if not own:
            continue
        for marker, chosen in (("o", False), ("x", True)):
            part = [cell for cell in own if cell.fits is chosen]
            label = side if marker == "o" else None
            left.plot([cell.seconds for cell in part], [fit.predicted(machine, c) for c in part],
                      marker, color=colour, label=label, markersize=5)  # fmt: skip
    bounds = [min(c.seconds for c in cells), max(c.seconds for c in cells)]
    for factor in (0.9, 1.1):
        left.plot(bounds, [factor * bound for bound in bounds], "k:", linewidth=0.7)
    left.set(xscale="log", yscale="log", xlabel="measured, s", ylabel="model, s",
             title="o judged, x fitted; dotted: 10 %")  # fmt: skip
    left.legend(fontsize=7)
    for axes, (name, network) in zip((middle, right), NETWORKS.items(), strict=True):
        for size, style in zip(SIZES, ("--", "-"), strict=True):
            flat, ring, tree = [], [], []
            for nodes in NODES:
                ranks = nodes * RANKS_OF_A_NODE
                flat.append(large_ring_seconds(network, "endpoints", IN_ORDER, ranks, size))
                ring.append(large_ring_seconds(network, "endpoints", OF_NODES, nodes, size))
                tree.append(extrapolate.halving_seconds(network, nodes, size))
            for label, times, colour in (
                ("flat ring of ranks", flat, COLOURS["endpoints"]),
                ("ring of nodes", ring, COLOURS["hierarchical"]),
                ("tree", tree, COLOURS["mpi"]),
            ):
                axes.plot(NODES, times, style, color=colour, marker=".",
                          label=label if style == "-" else None)  # fmt: skip
        axes.set(xscale="log", yscale="log", xlabel="nodes of 8 ranks", ylabel="model, s",
                 title=f"100 Gbit/s, {name}: 1 MB dashed, 100 MB")  # fmt: skip
        axes.legend(fontsize=7)
    return figure


def main() -> int:
    """Fits, prints and draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_output(parser, HERE)
    options = parser.parse_args()
    seconds: dict[tuple[str, str, str, int, str], list[float]] = {}
    for row in read_csv(Path(options.output) / "results.csv"):
        key = (row.part, row.rate, row.placement, row.bytes, row.side)
        seconds.setdefault(key, []).append(row.seconds)
    cells = list(fit.cells(seconds))
    if not any(cell.fits for cell in cells):
        raise HvdFtError("there is nothing to fit the model to: run experiments.locality.run first")
    machine = fit.fitted(cells)
    print("fitted: " + ", ".join(f"{name} {getattr(machine, name):.3g}" for name in fit.FITTED))
    print("\n".join((*errors(machine, cells), *worst(machine, cells))))
    for size in SIZES:
        print("\n".join(per_node(size)))
    print("\n".join((*level(), *deaths())))
    picture(machine, cells).savefig(Path(options.output) / "model.png", dpi=130)
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    end_with(main)
