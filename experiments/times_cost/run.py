"""Measures what it costs a step that a job measures how its ranks spend their time.

README.md in this folder tells what is measured; `python -m experiments.times_cost.run --help` the
flags.
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from experiments.common import add_output, count, end_with, run_training, write_csv
from experiments.times_cost.unmeasured import build_unmeasured

HERE = Path(__file__).resolve().parent
TRAIN = HERE.parent / "snapshot_cost" / "train.py"
LIBRARY = "HOROVOD_FT_LIBRARY"

Row = Mapping[str, float]


def measure(library: Path | None, width: int, steps: int, ranks: int) -> float:
    """Runs a training.

    Args:
        library: the core to use; None: hvd_ft's own.
        width: of the model's layers.
        steps: of the training.
        ranks: of the job.

    Returns:
        The median step, in milliseconds.

    Raises:
        HvdFtError: the job failed.
    """
    if library is not None:
        os.environ[LIBRARY] = str(library)
    try:
        flags = ["--width", str(width), "--steps", str(steps), "--snapshots", "chosen"]
        measured, _ = run_training(["-np", str(ranks), "--no-live"], TRAIN, flags)
    finally:
        os.environ.pop(LIBRARY, None)
    return float(measured["step_median_ms"])


def table(rows: Sequence[Row]) -> str:
    """Returns medians, and the quartiles of the ratio in each round, as a Markdown table."""
    lines = ["| width | step, unmeasured | step, measured | ratio |", "|--:|--:|--:|--:|"]
    for width in dict.fromkeys(row["width"] for row in rows):
        own = [row for row in rows if row["width"] == width]
        without, measured = (
            statistics.median(row[name] for row in own) for name in ("unmeasured_ms", "measured_ms")
        )
        low, middle, high = statistics.quantiles(ratios(rows, width), method="inclusive")
        cells = f"{without:.2f} ms | {measured:.2f} ms | {middle:.3f} ({low:.3f} to {high:.3f})"
        lines.append(f"| {width:g} | {cells} |")
    return "\n".join(lines)


def ratios(rows: Sequence[Row], width: float) -> list[float]:
    """Returns, for each round, the measured step divided by the unmeasured one."""
    return [row["measured_ms"] / row["unmeasured_ms"] for row in rows if row["width"] == width]


def plot(rows: Sequence[Row]) -> Figure:
    """Draws the ratios of all rounds by the width of the model."""
    widths = list(dict.fromkeys(row["width"] for row in rows))
    figure = Figure(figsize=(4, 3.5), layout="constrained")
    axes = figure.add_subplot()
    axes.boxplot([ratios(rows, width) for width in widths])
    axes.set_xticks(range(1, len(widths) + 1), [f"{width:g}" for width in widths])
    axes.axhline(1, color="#999999", linestyle="--")
    axes.set(xlabel="width of the model", ylabel="measured step / unmeasured step")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def main() -> int:
    """Measures, the two cores taking turns; writes results.csv and plot.png, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=count, default=8, help="rounds of both cores")
    parser.add_argument("--ranks", type=count, default=2)
    parser.add_argument("--widths", type=count, nargs="*", default=[50, 400])
    parser.add_argument("--steps", type=count, default=1000)
    add_output(parser, HERE)
    options = parser.parse_args()
    if options.repeats < 2:
        parser.error("the spread needs 2 rounds: give --repeats")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        library = build_unmeasured(Path(folder))
        for turn in range(options.repeats):
            for width in options.widths:
                row = {"round": turn, "width": width}
                names = ["unmeasured_ms", "measured_ms"]
                for name in names if turn % 2 == 0 else reversed(names):
                    core = library if name == "unmeasured_ms" else None
                    row[name] = round(measure(core, width, options.steps, options.ranks), 4)
                rows.append({key: row[key] for key in ("round", "width", *names)})
                print(rows[-1], flush=True)
                write_csv(options.output / "results.csv", rows)
    print(table(rows))
    plot(rows).savefig(options.output / "plot.png", dpi=150)
    return 0


if __name__ == "__main__":
    end_with(main)
