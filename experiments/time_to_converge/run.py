"""Compares training times, without and with a failure: stock Horovod, Horovod Elastic and ft.

Figure 6 of the paper that this project started from. README.md in this folder tells what is
measured; `python -m experiments.time_to_converge.run --help` the flags.
"""

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from matplotlib.figure import Figure

from experiments.common import add_output, count, end_with, write_csv
from experiments.sides import SIDES, Side, Steps, attempt, available, check_ended, empty_log
from hvd_ft.errors import HvdFtError
from hvd_ft.installed.environment import check_environment

HERE = Path(__file__).resolve().parent
VICTIM = 2
IMAGES, BATCH = 1400, 14
LIMIT_SECONDS = 900


@dataclass(frozen=True)
class Measurement:
    """One training, from the first command to the end of the last.

    Attributes:
        repeat: From 0.
        ranks: How many.
        side: Of sides.SIDES.
        failure: Where one rank was killed, as a part of all steps; 0 means that none was.
        seconds: Wall time, all attempts together.
        attempts: How often the job was started.
        accuracy: On the test set, at the end.
    """

    repeat: int
    ranks: int
    side: str
    failure: float
    seconds: float
    attempts: int
    accuracy: float


def measure(
    repeat: int, ranks: int, side: Side, failure: float, *, epochs: int, log: Path
) -> Measurement:
    """Trains to the end; a job that died is started again from scratch, as one has to.

    Args:
        repeat: From 0.
        ranks: How many.
        side: How.
        failure: When a rank is killed, as a part of all steps; 0 for never.
        epochs: Of the training.
        log: Takes the jobs' output.

    Raises:
        HvdFtError: The job died though no rank was killed, or twice.
    """
    step = round(failure * epochs * (IMAGES // (ranks * BATCH)))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        flags = ["--epochs", str(epochs), *(["--die", f"{VICTIM}:{step}"] if failure else [])]
        seconds, ended = attempt(side, ranks, flags, folder, log, limit_seconds=LIMIT_SECONDS)
        attempts = 1
        if not ended and failure:
            again, ended = attempt(side, ranks, flags, folder, log, limit_seconds=LIMIT_SECONDS)
            seconds += again
            attempts += 1
        check_ended(ended, side, log)
        steps = Steps.read(folder)
    if steps.accuracy is None or len(steps.killed) != (1 if failure else 0):
        raise HvdFtError(f"the {side.name} job did not do what it was to; its output is in {log}")
    found = (repeat, ranks, side.name, failure, round(seconds, 3), attempts)
    return Measurement(*found, accuracy=steps.accuracy)


def name_of(failure: float) -> str:
    """Says in words when a rank was killed."""
    return f"one failure\nat {failure:.0%} of the steps" if failure else "no failure"


def plot(rows: Sequence[Measurement]) -> Figure:
    """Draws medians as bars and every single measurement as a point, by number of ranks."""
    sizes = sorted({row.ranks for row in rows})
    names = [name for name in SIDES if any(row.side == name for row in rows)]
    failures = sorted({row.failure for row in rows})
    figure = Figure(figsize=(2 + 3.2 * len(sizes) * len(failures) / 2, 4), layout="constrained")
    width = 0.8 / len(names)
    for axes, ranks in zip(
        figure.subplots(1, len(sizes), squeeze=False, sharey=True)[0], sizes, strict=True
    ):
        for number, name in enumerate(names):
            for place, failure in enumerate(failures):
                own = seconds_of(rows, ranks, name, failure)
                if not own:
                    continue
                at = place + (number - (len(names) - 1) / 2) * width
                label = SIDES[name].label.replace("\n", " ") if place == 0 else None
                median = statistics.median(own)
                axes.bar(at, median, 0.9 * width, color=SIDES[name].colour, label=label)
                axes.plot([at] * len(own), own, "k.", markersize=4)
                axes.annotate(f"{median:.0f}", (at, 0.5), ha="center", color="white", fontsize=8)
        axes.set_xticks(range(len(failures)), [name_of(failure) for failure in failures])
        axes.set_title(f"{ranks} ranks")
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("seconds until the training is complete")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    return figure


def seconds_of(rows: Sequence[Measurement], ranks: int, side: str, failure: float) -> list[float]:
    """Returns what was measured of a case."""
    return [
        row.seconds for row in rows if (row.ranks, row.side, row.failure) == (ranks, side, failure)
    ]


def table(rows: Sequence[Measurement]) -> str:
    """Returns medians and spread as a Markdown table."""
    names = [name for name in SIDES if any(row.side == name for row in rows)]
    labels = " | ".join(" ".join(SIDES[name].label.split()) for name in names)
    lines = [f"| ranks | | {labels} |", "|---" * (len(names) + 2) + "|"]
    for ranks in sorted({row.ranks for row in rows}):
        for failure in sorted({row.failure for row in rows}):
            cells = []
            for name in names:
                own = seconds_of(rows, ranks, name, failure)
                spread = f"{min(own):.1f} to {max(own):.1f}; {len(own)}" if own else ""
                cells.append(f"{statistics.median(own):.1f} ({spread})" if own else "")
            what = " ".join(name_of(failure).split())
            lines.append(f"| {ranks} | {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Measures, the sides taking turns; writes results.csv and plot.png, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=count, default=3)
    parser.add_argument("--ranks", type=count, nargs="*", default=[4, 8])
    parser.add_argument("--epochs", type=count, default=12)
    parser.add_argument("--sides", nargs="*", choices=SIDES, default=["stock", "elastic", "ft"])
    parser.add_argument(
        "--failures", type=float, nargs="*", default=[0.5, 0.9], help="parts of all steps"
    )
    add_output(parser, HERE)
    options = parser.parse_args()
    check_environment()
    sides = available(options.sides)
    log = empty_log("time_to_converge")
    rows = []
    for repeat in range(options.repeats):
        for ranks in options.ranks:
            for failure in (0.0, *options.failures):
                # Who goes first changes, so that no side has the warmer machine.
                for side in sides if repeat % 2 == 0 else reversed(sides):
                    row = measure(repeat, ranks, side, failure, epochs=options.epochs, log=log)
                    rows.append(row)
                    print(row, flush=True)
                    write_csv(options.output / "results.csv", [asdict(row) for row in rows])
    plot(rows).savefig(options.output / "plot.png", dpi=150)
    print(table(rows))
    return 0


if __name__ == "__main__":
    end_with(main)
