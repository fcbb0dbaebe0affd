"""Compares the training time on 4 and on 8 nodes.

Figure 7 of the paper that this project started from. Makes the nodes out of namespaces, so it needs
root. README.md in this folder tells what is measured; `python -m experiments.more_nodes.run --help`
the flags.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from experiments.common import (
    HVDFT,
    ROOT,
    add_output,
    cluster_up,
    count,
    end_with,
    inside,
    run_to_end,
    write_csv,
)
from experiments.sides import Steps, empty_log
from hvd_ft.errors import HvdFtError
from hvd_ft.installed.environment import check_environment

HERE = Path(__file__).resolve().parent
RATE = "1gbit"
LIMIT_SECONDS = 900
Row = Mapping[str, float]


def measure(cluster: str, nodes: int, repeat: int, epochs: int, log: Path) -> Row:
    """Trains on so many nodes of a cluster, a rank on each; returns a row of results.csv.

    Raises:
        HvdFtError: the job failed.
    """
    hosts = ",".join(f"n{node}:1" for node in range(nodes))
    with tempfile.TemporaryDirectory() as folder, log.open("ab") as output:
        enter = inside(cluster)
        job = [*HVDFT, "run", "--no-live", "-np", str(nodes), "-H", hosts, sys.executable]
        script = ["-m", "experiments.train_digits", "--side", "ft", "--epochs", str(epochs)]
        begin = time.perf_counter()
        ended = run_to_end(
            [*enter, *job, *script, "--notes", folder],
            LIMIT_SECONDS,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONPATH": str(ROOT)},
            stdout=output,
            stderr=output,
        )
        seconds = time.perf_counter() - begin
        if ended.returncode:
            raise HvdFtError(f"the training failed; its output is in {log}")
        steps = Steps.read(Path(folder))
    number = max(step for own in steps.done.values() for step, _ in own)
    return {
        "nodes": nodes,
        "repeat": repeat,
        "seconds": round(seconds, 2),
        "steps": number,
        "step_ms": round(1000 * steps.step_seconds, 2),
        "accuracy": steps.accuracy or 0.0,
    }


def plot(rows: Sequence[Row]) -> Figure:
    """Draws medians as bars and every measurement as a point: of all, and of a step."""
    figure = Figure(figsize=(7, 3.5), layout="constrained")
    sizes = sorted({row["nodes"] for row in rows})
    for axes, column, name in zip(
        figure.subplots(1, 2),
        ("seconds", "step_ms"),
        ("seconds until the training is complete", "milliseconds of a step, median"),
        strict=True,
    ):
        for place, nodes in enumerate(sizes):
            own = [row[column] for row in rows if row["nodes"] == nodes]
            axes.bar(place, statistics.median(own), 0.6, color="#0072B2")
            axes.plot([place] * len(own), own, "k.", markersize=5)
        axes.set_xticks(range(len(sizes)), [f"{nodes:g} nodes" for nodes in sizes])
        axes.set_ylabel(name)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def table(rows: Sequence[Row]) -> str:
    """Returns medians and spread as a Markdown table."""
    lines = ["| nodes | seconds | steps | ms of a step |", "|--:|--:|--:|--:|"]
    for nodes in sorted({row["nodes"] for row in rows}):
        own = [row for row in rows if row["nodes"] == nodes]
        cells = []
        for column in ("seconds", "step_ms"):
            values = [row[column] for row in own]
            spread = f"{min(values):.1f} to {max(values):.1f}"
            cells.append(f"{statistics.median(values):.1f} ({spread})")
        lines.append(f"| {nodes} | {cells[0]} | {own[0]['steps']} | {cells[1]} |")
    return "\n".join(lines)


def main() -> int:
    """Measures, the sizes taking turns; writes results.csv and plot.png, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=count, default=3)
    parser.add_argument("--nodes", type=count, nargs="*", default=[4, 8])
    parser.add_argument("--epochs", type=count, default=12)
    add_output(parser, HERE)
    options = parser.parse_args()
    check_environment()
    log = empty_log("more_nodes")
    rows: list[Row] = []
    with cluster_up("nodes", max(options.nodes), RATE) as cluster:
        for repeat in range(options.repeats):
            for nodes in options.nodes if repeat % 2 == 0 else reversed(options.nodes):
                rows.append(measure(cluster, nodes, repeat, options.epochs, log))
                print(rows[-1], flush=True)
                write_csv(options.output / "results.csv", rows)
    plot(rows).savefig(options.output / "plot.png", dpi=150)
    print(table(rows))
    return 0


if __name__ == "__main__":
    end_with(main)
