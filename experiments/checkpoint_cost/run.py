"""Measures what background checkpoints cost a training, and their writer.

README.md in this folder tells what is measured; `python -m experiments.checkpoint_cost.run --help`
the flags.
"""

import argparse
import itertools
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from experiments.common import (
    HVDFT,
    add_output,
    count,
    directory,
    end_with,
    output_of,
    write_csv,
)
from hvd_ft.errors import HvdFtError
from hvd_ft.installed.environment import check_environment

HERE = Path(__file__).resolve().parent
RANKS = 4
WARM_UP = 10  # steps
DEFAULT_INTERVAL_SECONDS = 600  # of --checkpoint-interval
NS = 1e9

Row = Mapping[str, float]


def run_job(options: argparse.Namespace) -> tuple[list[int], dict[str, list]]:
    """Runs a job; returns when rank 0 had done each step, in ns, and what train.py has written.

    Raises:
        HvdFtError: the job failed.
    """
    with tempfile.TemporaryDirectory(dir=options.disk) as folder:
        times, watched = Path(folder, "times"), Path(folder, "watched")
        times.mkdir()
        checkpoints = ["--checkpoint-dir", f"{folder}/checkpoints", "--checkpoint-keep", "1"]
        every = ["--checkpoint-interval", f"{options.interval}s"]
        job = [*HVDFT, "run", "-np", str(RANKS), *checkpoints, *every]
        script = [sys.executable, "-m", "experiments.checkpoint_cost.train", "--times", str(times)]
        sizes = ["--width", str(options.width), "--steps", str(options.steps)]
        output_of([*job, *script, *sizes, "--watched", str(watched)])
        [own] = times.glob("*-0-0")
        done = [int(line.split()[1]) for line in own.read_text().splitlines()]
        return done, json.loads(watched.read_text())


def windows(rounds: Sequence[tuple[str, int]]) -> list[tuple[int, int]]:
    """Returns from when to when a checkpoint was being written, in ns; without one that was not
    completed, or begun anew."""
    return [
        (begin, end)
        for (kind, begin), (then, end) in itertools.pairwise(rounds)
        if (kind, then) == ("CHECKPOINT", "CHECKPOINTED")
    ]


def costs(done: Sequence[int], watched: Mapping[str, list]) -> list[dict[str, float]]:
    """Returns a row for each checkpoint: its steps against those around it.

    Args:
        done: when each step was done, in ns.
        watched: as train.py has written it.
    """
    spans = windows([tuple(each) for each in watched["rounds"]])
    steps = list(itertools.pairwise(done))  # step n + 1 lasts from done[n] to done[n + 1]

    def in_span(step: tuple[int, int], span: tuple[int, int]) -> bool:
        return step[0] < span[1] and step[1] > span[0]

    rows = []
    for number, span in enumerate(spans):
        before = spans[number - 1][1] if number > 0 else done[WARM_UP]
        after = spans[number + 1][0] if number + 1 < len(spans) else done[-1]
        own = [at for at, step in enumerate(steps) if in_span(step, span)]
        quiet = [
            step
            for step in steps
            if step[0] >= before and step[1] <= after and not in_span(step, span)
        ]
        if not own or len(quiet) < len(own) or span[0] < before:
            continue
        with_it = sum(steps[at][1] - steps[at][0] for at in own) / NS
        without = statistics.mean(end - begin for begin, end in quiet) / NS
        rows.append(
            {
                "checkpoint": number,
                "seconds": round((span[1] - span[0]) / NS, 3),
                "steps": len(own),
                "step_with_s": round(with_it / len(own), 4),
                "step_without_s": round(without, 4),
                "ratio": round(with_it / len(own) / without, 4),
                "extra_s": round(with_it - len(own) * without, 3),
                "writer_cpu_s": round(watched["cpu"][own[-1] + 1] - watched["cpu"][own[0]], 2),
            }
        )
    return rows


def spread(rows: Sequence[Row], name: str) -> tuple[float, float, float]:
    """Returns the median of a column, its lower and its upper quartile."""
    values = [row[name] for row in rows]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return middle, low, high


def table(rows: Sequence[Row]) -> str:
    """Returns medians and spread as a Markdown table."""
    lines = ["| of a checkpoint | median | quartiles |", "|---|--:|--:|"]
    for name, unit in (
        ("seconds", "s from its request to its completion"),
        ("step_with_s", "s, a step meanwhile"),
        ("step_without_s", "s, a step before and after"),
        ("ratio", "of them"),
        ("extra_s", "s that the training took longer"),
        ("writer_cpu_s", "s of CPU time of the writer"),
    ):
        middle, low, high = spread(rows, name)
        lines.append(f"| {name}: {unit} | {middle:.3f} | {low:.3f} to {high:.3f} |")
    for name in ("extra_s", "writer_cpu_s"):
        middle, low, high = (100 * each / DEFAULT_INTERVAL_SECONDS for each in spread(rows, name))
        share = f"{name}, of {DEFAULT_INTERVAL_SECONDS} s"
        lines.append(f"| {share} | {middle:.2f} % | {low:.2f} % to {high:.2f} % |")
    return "\n".join(lines)


def plot(rows: Sequence[Row]) -> Figure:
    """Draws the steps with and without a checkpoint, and what each costs of the interval."""
    figure = Figure(figsize=(8, 3.5), layout="constrained")
    steps, share = figure.subplots(1, 2)
    at = range(len(rows))
    without = [row["step_without_s"] for row in rows]
    steps.plot(at, without, "o", color="#0072B2", label="before and after")
    steps.plot(at, [row["step_with_s"] for row in rows], "s", color="#E69F00", label="meanwhile")
    steps.set(xlabel="checkpoint", ylabel="seconds of a step")
    steps.set_ylim(bottom=0)
    steps.legend(frameon=False)
    names = {"extra_s": "training longer", "writer_cpu_s": "writer's CPU"}
    percent = [[100 * row[name] / DEFAULT_INTERVAL_SECONDS for row in rows] for name in names]
    share.boxplot(percent, tick_labels=list(names.values()))
    share.axhline(1, color="#999999", linestyle="--")
    share.set_ylabel("% of the default interval")
    for axes in (steps, share):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def main() -> int:
    """Measures; writes results.csv and plot.png, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=count, default=2, help="jobs")
    parser.add_argument("--width", type=count, default=3536, help="3536: 25 million parameters")
    parser.add_argument("--steps", type=count, default=400)
    parser.add_argument("--interval", type=count, default=20, help="seconds between checkpoints")
    parser.add_argument("--disk", type=directory, help="where the checkpoints go")
    add_output(parser, HERE)
    options = parser.parse_args()
    check_environment()
    rows: list[dict[str, float]] = []
    for repeat in range(options.repeats):
        for row in costs(*run_job(options)):
            rows.append({"job": repeat, **row})
            print(rows[-1], flush=True)
        if rows:
            write_csv(options.output / "results.csv", rows)
    if len(rows) < 2:
        raise HvdFtError("too few checkpoints were written: give more --steps")
    print(table(rows))
    plot(rows).savefig(options.output / "plot.png", dpi=150)
    return 0


if __name__ == "__main__":
    end_with(main)
