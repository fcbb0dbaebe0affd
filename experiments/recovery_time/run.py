"""Measures how long a job stands still when a rank is killed, with and without a warm spare.

README.md in this folder tells what is measured; `python -m experiments.recovery_time.run --help`
the flags.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib.figure import Figure

from experiments.common import ROOT, add_output, count, end_with, run_to_end, write_csv
from hvd_ft.errors import HvdFtError
from hvd_ft.installed.environment import check_environment
from hvd_ft.reports.report import failures, read_report

HERE = Path(__file__).resolve().parent
RANKS = 4
VICTIM = 2
DIE_STEP = 50
SIDES = {
    "bare": "bare start\nto the first step",
    "restart": "kill to next step,\nno spare",
    "spare": "kill to next step,\nwarm spare",
}
PARTS = ("process_start", "script_start", "restore", "replay")  # of a recovery
LIMIT_SECONDS = 120


@dataclass(frozen=True)
class Measurement:
    """One start or one recovery, in seconds.

    Attributes:
        repeat: From 0.
        side: One of SIDES.
        seconds: `bare`: from the command to the end of its first step. Otherwise from the SIGKILL
            until the last rank has completed the step after.
        parts: Of a recovery, by their names in `hvd_ft.reports.report.Failure`; `bare` has none.
    """

    repeat: int
    side: str
    seconds: float
    parts: Mapping[str, float] = field(default_factory=dict)

    def row(self) -> dict[str, object]:
        """Returns its line of results.csv."""
        seconds = {"seconds": self.seconds, **dict.fromkeys(PARTS), **self.parts}
        cells = {name: value and round(value, 4) for name, value in seconds.items()}
        return {"repeat": self.repeat, "side": self.side, **cells}


def run_script(launch: Sequence[str], flags: Sequence[str], times: str, log: Path) -> None:
    """Runs train.py to its end.

    Args:
        launch: The words before Python's.
        flags: Of train.py.
        times: Directory for its files.
        log: Takes the output.

    Raises:
        HvdFtError: It failed.
    """
    script = [sys.executable, "-m", "experiments.recovery_time.train", "--times", times]
    with log.open("ab") as output:
        ended = run_to_end(
            [*launch, *script, *flags],
            LIMIT_SECONDS,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
            stdout=output,
            stderr=output,
        )
    if ended.returncode != 0:
        raise HvdFtError(f"the training failed; its output is in {log}")


def read_times(folder: str, rank: int) -> dict[tuple[str, int], int]:
    """Returns by event (`step` or `killed`) and step when it was, in ns."""
    lines = Path(folder, str(rank)).read_text().splitlines()
    return {(word, int(step)): int(ns) for word, step, ns in map(str.split, lines)}


def bare_start(repeat: int, log: Path) -> Measurement:
    """Measures the script alone, until its first step is done."""
    with tempfile.TemporaryDirectory() as times:
        begin = time.monotonic_ns()
        run_script([], ["--epochs", "1"], times, log)
        done = read_times(times, 0)["step", 1]
    return Measurement(repeat, "bare", (done - begin) / 1e9)


def recovery(repeat: int, side: str, log: Path) -> Measurement:
    """Measures a job in which one rank is killed."""
    spares = ["--spares", "1"] if side == "spare" else []
    flags = ["--die-rank", str(VICTIM), "--die-step", str(DIE_STEP)]
    flags += ["--await-spare"] if spares else []
    with tempfile.TemporaryDirectory() as times, tempfile.TemporaryDirectory() as scratch:
        report = f"{scratch}/report.jsonl"
        job = ["run", "-np", str(RANKS), "--no-live", "--report", report, *spares]
        run_script([sys.executable, "-m", "hvd_ft.cli", *job], flags, times, log)
        killed = read_times(times, VICTIM)["killed", DIE_STEP]
        done = max(read_times(times, rank)["step", DIE_STEP + 1] for rank in range(RANKS))
        [failure] = failures(read_report(report).events)
    parts = {part: value for part in PARTS if (value := getattr(failure, part)) is not None}
    return Measurement(repeat, side, (done - killed) / 1e9, parts)


def plot(rows: Sequence[Measurement]) -> Figure:
    """Draws medians as bars and every single measurement as a point."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    for place, (side, colour) in enumerate(zip(SIDES, ("#999999", "#0072B2", "#009E73"))):  # noqa: B905
        own = [row.seconds for row in rows if row.side == side]
        median = statistics.median(own)
        axes.bar(place, median, 0.6, color=colour)
        axes.plot([place] * len(own), own, "k.", markersize=5)
        axes.annotate(f"{median:.2f} s", (place, 0.1), ha="center", color="white")
    axes.set_xticks(range(len(SIDES)), list(SIDES.values()))
    axes.set_ylabel("seconds")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def table(rows: Sequence[Measurement]) -> str:
    """Returns medians and spread as a Markdown table."""
    lines = ["| | seconds | " + " | ".join(part.replace("_", " ") for part in PARTS) + " |"]
    lines.append("|---" * (len(PARTS) + 2) + "|")
    for side, name in SIDES.items():
        own = [row for row in rows if row.side == side]
        seconds = [row.seconds for row in own]
        cells = [f"{statistics.median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f})"]
        for part in PARTS:
            known = [row.parts[part] for row in own if part in row.parts]
            cells.append(f"{statistics.median(known):.3f}" if known else "")
        lines.append(f"| {' '.join(name.split())} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    """Measures, alternating the sides; writes results.csv and plot.png, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=count, default=7)
    add_output(parser, HERE)
    options = parser.parse_args()
    check_environment()
    log = ROOT / "out" / "recovery_time.log"
    log.parent.mkdir(exist_ok=True)
    log.write_text("")
    rows: list[Measurement] = []
    for repeat in range(options.repeats):
        # Who goes first changes, so that no side has the warmer machine.
        for side in SIDES if repeat % 2 == 0 else reversed(SIDES):
            row = bare_start(repeat, log) if side == "bare" else recovery(repeat, side, log)
            rows.append(row)
            print(f"{repeat} {side:8} {row.seconds:.3f} s", flush=True)
            write_csv(options.output / "results.csv", [row.row() for row in rows])
    plot(rows).savefig(options.output / "plot.png", dpi=150)
    print(table(rows))
    return 0


if __name__ == "__main__":
    end_with(main)
