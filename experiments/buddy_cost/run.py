"""Measures what it costs a step that each rank's private state goes to its buddy's host.

Makes the hosts out of namespaces, so it needs root. README.md in this folder tells what is
measured; `python -m experiments.buddy_cost.run --help` the flags.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from experiments.common import (
    HVDFT,
    add_output,
    cluster_up,
    count,
    end_with,
    inside,
    output_of,
    write_csv,
)
from hvd_ft.installed.environment import check_environment

HERE = Path(__file__).resolve().parent
HOSTS, RANKS = "n0:1,n1:1,n2:1", 3
RATE = "1gbit"
LOOPS = 64  # in one job: its time limit is for so many
KIB = (1, 64, 1024, 16384)  # of private state; the first one is next to none
WARM_UP = 3  # steps of a loop

Row = Mapping[str, float]


def run_job(rounds: int, steps: int) -> Iterator[dict[str, float]]:
    """Runs a job; yields a row for each of its training loops.

    Args:
        rounds: of loops, one for each size of private state.
        steps: of a loop.

    Raises:
        HvdFtError: the job failed.
    """
    sizes = ["--kib", *map(str, KIB), "--rounds", str(rounds), "--steps", str(steps)]
    with cluster_up("buddy", RANKS, RATE) as cluster:
        enter = inside(cluster)
        job = [*HVDFT, "run", "-np", str(RANKS), "-H", HOSTS]
        script = [sys.executable, "-m", "experiments.buddy_cost.train"]
        output = output_of([*enter, *job, *script, *sizes])
    for line in output.splitlines():
        if line.startswith("LOOP "):
            loop = json.loads(line[5:])
            seconds = loop["seconds"][WARM_UP:]
            yield {
                "round": loop["round"],
                "private_kib": loop["kib"],
                "step_median_s": round(statistics.median(seconds), 5),
                "step_mean_s": round(statistics.mean(seconds), 5),
            }


def ratios(rows: Sequence[Row], kib: int, name: str) -> list[float]:
    """Returns, for each round, a column's value divided by that next to no private state."""
    by_round = {(row["round"], row["private_kib"]): row[name] for row in rows}
    turns = sorted({turn for turn, _ in by_round})
    return [by_round[turn, kib] / by_round[turn, KIB[0]] for turn in turns]


def slope(rows: Sequence[Row]) -> float:
    """Returns what a KiB adds to the mean step, in seconds: the median of all rounds."""
    own = {(row["round"], row["private_kib"]): row["step_mean_s"] for row in rows}
    turns = {turn for turn, _ in own}
    most = KIB[-1]
    return statistics.median((own[t, most] - own[t, KIB[0]]) / (most - KIB[0]) for t in turns)


def table(rows: Sequence[Row]) -> str:
    """Returns medians and quartiles as a Markdown table."""
    lines = [
        f"| private state | step, mean | against {KIB[0]} KiB, mean | the same, median step |",
        "|--:|--:|--:|--:|",
    ]
    for kib in KIB:
        step = statistics.median(row["step_mean_s"] for row in rows if row["private_kib"] == kib)
        cells = []
        for name in ("step_mean_s", "step_median_s"):
            low, middle, high = statistics.quantiles(ratios(rows, kib, name), method="inclusive")
            cells.append(f"{middle:.3f} ({low:.3f} to {high:.3f})")
        lines.append(f"| {kib} KiB | {1000 * step:.1f} ms | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def plot(rows: Sequence[Row]) -> Figure:
    """Draws the ratios of all rounds by the size of the private state."""
    figure = Figure(figsize=(5, 3.5), layout="constrained")
    axes = figure.add_subplot()
    axes.boxplot([ratios(rows, kib, "step_mean_s") for kib in KIB[1:]])
    axes.set_xticks(range(1, len(KIB)), [f"{kib} KiB" for kib in KIB[1:]])
    axes.axhline(1, color="#999999", linestyle="--")
    axes.set(xlabel="private state of a rank", ylabel=f"mean step / that with {KIB[0]} KiB")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def main() -> int:
    """Measures, sizes taking turns; writes results.csv and plot.png, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=count, default=12, help="rounds of all sizes")
    parser.add_argument("--steps", type=count, default=40, help="of a training loop")
    add_output(parser, HERE)
    options = parser.parse_args()
    most = LOOPS // len(KIB)
    if not 2 <= options.repeats <= most:
        parser.error(f"a job has room for {most} rounds, and the spread needs 2: give --repeats")
    if options.steps <= WARM_UP:
        parser.error(f"the first {WARM_UP} steps do not count: give more --steps")
    check_environment()
    rows = list(run_job(options.repeats, options.steps))
    write_csv(options.output / "results.csv", rows)
    print(table(rows))
    print(f"{1e6 * slope(rows):.3f} us a KiB and step")
    plot(rows).savefig(options.output / "plot.png", dpi=150)
    return 0


if __name__ == "__main__":
    end_with(main)
