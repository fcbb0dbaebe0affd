"""Measures the cost of snapshots: none, a chosen interval, and one every 10 steps.

README.md in this folder tells what is measured; `python -m experiments.snapshot_cost.run --help`
the flags.
"""

import argparse
from pathlib import Path

from experiments.common import (
    add_output,
    count,
    end_with,
    largest_share,
    run_training,
    write_csv,
)

HERE = Path(__file__).resolve().parent
SNAPSHOTS = ("none", "chosen", "10")
MEASURED = ("snapshot_mb", "step_median_ms", "step_mean_ms")  # by train.py


def measure(width: int, steps: int, snapshots: str, ranks: int) -> dict[str, object]:
    """Runs one training.

    Args:
        width: of the model's layers.
        steps: of the training.
        snapshots: as train.py takes it.
        ranks: of the job.

    Returns:
        A row of results.csv; shares in percent of the training time, of the rank with the most.

    Raises:
        HvdFtError: the job failed.
    """
    flags = ["--width", str(width), "--steps", str(steps), "--snapshots", snapshots]
    measured, report = run_training(["-np", str(ranks)], HERE / "train.py", flags)
    costs = report.facts["ranks"][0]["snapshots"]
    return {
        "width": width,
        "ranks": ranks,
        "steps": steps,
        "snapshots": snapshots,
        **{name: round(measured[name], 2) for name in MEASURED},
        "taken": costs["count"],
        "every_steps": costs["steps"],
        "stall_percent": largest_share(report, "stall_ns"),
        "copy_percent": largest_share(report, "copy_ns"),
    }


def main() -> int:
    """Measures, the kinds of snapshots taking turns; writes results.csv."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=count, default=2)
    parser.add_argument("--ranks", type=count, default=2)
    parser.add_argument("--widths", type=count, nargs="*", default=[200, 1400, 2000])
    parser.add_argument("--steps", type=count, default=400)
    add_output(parser, HERE)
    options = parser.parse_args()
    rows = []
    for _ in range(options.repeats):
        for width in options.widths:
            for snapshots in SNAPSHOTS:
                row = measure(width, options.steps, snapshots, options.ranks)
                print(row, flush=True)
                rows.append(row)
                write_csv(options.output / "results.csv", rows)
    return 0


if __name__ == "__main__":
    end_with(main)
