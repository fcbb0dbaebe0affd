"""Switches the second seed's other suspects off, one at a time: temporary checkpoints, the network.

Makes the hosts out of namespaces, so it needs root. README.md in this folder tells what is
measured; `python -m experiments.suspects.run --help` the flags.
"""

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from experiments.common import (
    HVDFT,
    add_output,
    cluster_up,
    count,
    end_with,
    inside,
    output_of,
    result_of,
    write_csv,
)
from hvd_ft.installed.environment import check_environment
from hvd_ft.members.hosts import host_list, parse_placement

HERE = Path(__file__).resolve().parent
PLACEMENT = "2-1-1"
WIDTH = 512  # of both layers: 0.5 million parameters, 2.1 MB
# What an Estimator writes, and whether the network is there.
SIDES = {
    "as it is": ("temporary", "nothing"),
    "checkpoint every second step": ("frequent", "nothing"),
    "no checkpoints": ("none", "nothing"),
    "no checkpoints, no network": ("none", "network"),
}

Row = Mapping[str, Any]


def run_job(cluster: str, side: str, steps: int) -> dict[str, Any]:
    """Trains once; returns what it took.

    Raises:
        HvdFtError: The job failed.
    """
    checkpoints, ablated = SIDES[side]
    hosts = parse_placement(PLACEMENT)
    size = sum(host.slots for host in hosts)
    enter = inside(cluster)
    job = ["env", f"HOROVOD_FT_ABLATE={ablated}", "HOROVOD_FT_ON_DIVERGENCE=off"]
    job += [*HVDFT, "run", "--no-live", "-np", str(size), "-H", host_list(hosts)]
    script = [sys.executable, "-m", "experiments.suspects.train", "--checkpoints", checkpoints]
    output = output_of([*enter, *job, *script, "--width", str(WIDTH), "--steps", str(steps)])
    return result_of(output)


def table(rows: Sequence[Row]) -> str:
    """Returns medians and spread as a Markdown table."""
    lines = ["| side | seconds a step | seconds of `train` | n |", "|---|--:|--:|--:|"]
    for side in dict.fromkeys(row["side"] for row in rows):
        own = [row for row in rows if row["side"] == side]
        cells = []
        for name in ("step_median_s", "train_s"):
            values = [row[name] for row in own]
            middle = statistics.median(values)
            cells.append(f"{middle:.2f} ({min(values):.2f} to {max(values):.2f})")
        lines.append(f"| {side} | {' | '.join(cells)} | {len(own)} |")
    return "\n".join(lines)


def plot(rows: Sequence[Row]) -> Figure:
    """Draws medians as bars and every measurement as a point."""
    figure = Figure(figsize=(7, 3.8), layout="constrained")
    axes = figure.add_subplot()
    sides = [side for side in SIDES if any(row["side"] == side for row in rows)]
    for at, side in enumerate(sides):
        own = [row["step_median_s"] for row in rows if row["side"] == side]
        axes.bar(at, statistics.median(own), 0.6, color="#0072B2")
        axes.plot([at] * len(own), own, "k.", markersize=4)
    axes.set_xticks(range(len(sides)), [side.replace(", ", ",\n") for side in sides], fontsize=7)
    axes.set_ylabel("seconds a step")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def main() -> int:
    """Measures, sides taking turns; writes results.csv and plot.png, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=count, default=3, help="of each side")
    parser.add_argument("--steps", type=count, default=20, help="of a training")
    parser.add_argument("--rate", default="20mbit", help="of the links")
    add_output(parser, HERE)
    options = parser.parse_args()
    check_environment()
    rows: list[Row] = []
    with cluster_up("suspects", len(parse_placement(PLACEMENT)), options.rate) as cluster:
        for repeat in range(options.repeats):
            for side in SIDES if repeat % 2 == 0 else reversed(SIDES):
                row = run_job(cluster, side, options.steps)
                rows.append({"repeat": repeat, "side": side, **row})
                write_csv(options.output / "results.csv", rows)
                print(rows[-1], flush=True)
    print(table(rows))
    plot(rows).savefig(options.output / "plot.png", dpi=150)
    return 0


if __name__ == "__main__":
    end_with(main)
