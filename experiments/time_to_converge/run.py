"""Compares training times, without and with a failure: stock Horovod on MPI against ft.

Figure 6 of the paper that this project started from. README.md in this folder tells what is
measured; `python -m experiments.time_to_converge.run --help` the flags.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from matplotlib.figure import Figure

from experiments.common import add_output, count, end_with, write_csv
from hvd_ft.bench.backends import stock_environment
from hvd_ft.errors import HvdFtError
from hvd_ft.install.environment import check_environment, mpiexec_command

HERE = Path(__file__).resolve().parent
RANKS = 4
VICTIM = 2
STEPS_PER_EPOCH = 25  # 1400 images, 4 ranks, batches of 14
SIDES = ("stock", "ft")
COLOURS = {"stock": "#D55E00", "ft": "#0072B2"}


@dataclass(frozen=True)
class Measurement:
    """One training, from the first command to the end of the last.

    Attributes:
        repeat: From 0.
        side: `stock` or `ft`.
        failure: Where one rank was killed, as a part of all steps; 0 means that none was.
        seconds: Wall time, all attempts together.
        attempts: How often the job was started.
        accuracy: On the test set, at the end.
    """

    repeat: int
    side: str
    failure: float
    seconds: float
    attempts: int
    accuracy: float


def attempt(side: str, epochs: int, death: Sequence[str], log: Path) -> tuple[float, float | None]:
    """Runs the job once.

    Args:
        side: `stock` or `ft`.
        epochs: Of the training.
        death: Flags of train.py that kill a rank, or none.
        log: Takes the job's output.

    Returns:
        Seconds, and the test accuracy, or None if the job died.
    """
    if side == "stock":
        environment = stock_environment()
        launch = mpiexec_command(RANKS, environment)
    else:
        environment = {**os.environ}
        launch = [sys.executable, "-m", "hvd_ft.cli", "run", "-np", str(RANKS), "--no-live"]
    with tempfile.TemporaryDirectory() as results, log.open("ab") as output:
        command = [*launch, sys.executable, str(HERE / "train.py"), "--epochs", str(epochs)]
        begin = time.perf_counter()
        ended = subprocess.run(
            [*command, "--result", results, *death],
            env={**environment, "TF_CPP_MIN_LOG_LEVEL": "2"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
        )
        seconds = time.perf_counter() - begin
        if ended.returncode != 0:
            return seconds, None
        return seconds, json.loads((Path(results) / "rank-0.json").read_text())["accuracy"]


def measure(repeat: int, side: str, failure: float, epochs: int, log: Path) -> Measurement:
    """Trains to the end; a job that died is started again from scratch, as one has to.

    Args:
        repeat: From 0.
        side: `stock` or `ft`.
        failure: When a rank is killed, as a part of all steps; 0 for never.
        epochs: Of the training.
        log: Takes the jobs' output.

    Raises:
        HvdFtError: The job died though no rank was killed.
    """
    step = round(failure * epochs * STEPS_PER_EPOCH)
    death = ["--die-rank", str(VICTIM), "--die-step", str(step)] if failure else []
    seconds, accuracy = attempt(side, epochs, death, log)
    attempts = 1
    if accuracy is None and failure and side == "stock":
        again, accuracy = attempt(side, epochs, [], log)
        seconds += again
        attempts += 1
    if accuracy is None:
        raise HvdFtError(f"the {side} job died unexpectedly; its output is in {log}")
    return Measurement(repeat, side, failure, round(seconds, 3), attempts, accuracy)


def name_of(failure: float) -> str:
    """Says in words when a rank was killed."""
    return f"one failure\nat {failure:.0%} of the steps" if failure else "no failure"


def plot(rows: Sequence[Measurement]) -> Figure:
    """Draws medians as bars and every single measurement as a point."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    failures = sorted({row.failure for row in rows})
    for offset, side in zip((-0.2, 0.2), SIDES, strict=True):
        for place, failure in enumerate(failures):
            own = [r.seconds for r in rows if (r.side, r.failure) == (side, failure)]
            label = {"stock": "stock Horovod, MPI", "ft": "hvd_ft"}[side] if place == 0 else None
            median = statistics.median(own)
            axes.bar(place + offset, median, 0.36, color=COLOURS[side], label=label)
            axes.plot([place + offset] * len(own), own, "k.", markersize=5)
            axes.annotate(f"{median:.1f}", (place + offset, 0.5), ha="center", color="white")
    axes.set_xticks(range(len(failures)), [name_of(failure) for failure in failures])
    axes.set_ylabel("seconds until the training is complete")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def main() -> int:
    """Measures, alternating the sides; writes results.csv and plot.png."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=count, default=3)
    parser.add_argument("--epochs", type=count, default=12)
    parser.add_argument(
        "--failures", type=float, nargs="*", default=[0.5, 0.9], help="parts of all steps"
    )
    add_output(parser, HERE)
    options = parser.parse_args()
    check_environment()
    log = HERE.parents[1] / "out" / "time_to_converge.log"
    log.parent.mkdir(exist_ok=True)
    log.write_text("")
    rows = []
    for repeat in range(options.repeats):
        for failure in (0.0, *options.failures):
            # Who goes first changes, so that neither side has the warmer machine.
            for side in SIDES if repeat % 2 == 0 else reversed(SIDES):
                row = measure(repeat, side, failure, options.epochs, log)
                rows.append(row)
                print(f"{repeat} {side:5} {failure:4.0%} {row.seconds:6.1f} s", flush=True)
                write_csv(options.output / "results.csv", [asdict(row) for row in rows])
    plot(rows).savefig(options.output / "plot.png", dpi=150)
    for side in SIDES:
        for failure in (0.0, *options.failures):
            own = [r.seconds for r in rows if (r.side, r.failure) == (side, failure)]
            spread = f"{min(own):.1f} to {max(own):.1f}"
            print(f"{side:5} failure {failure:4.0%}: {statistics.median(own):.1f} s ({spread})")
    return 0


if __name__ == "__main__":
    end_with(main)
