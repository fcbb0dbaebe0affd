"""Shows what every rank does while several ranks crash, several times.

Figures 9 and 10 of the paper that this project started from. README.md in this folder tells what is
shown; `python -m experiments.crashes.run --help` the flags.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from experiments.common import HVDFT, ROOT, add_output, count, end_with, output_of, write_csv
from hvd_ft.installed.environment import check_environment
from hvd_ft.native.types import State
from hvd_ft.reports.plot import save_states
from hvd_ft.reports.report import Report, failures, intervals, read_report

HERE = Path(__file__).resolve().parent
RANKS = 4
# Rank 1 dies twice, two others once, as in the paper: parts of all steps.
DEATHS = ((1, 0, 0.2), (2, 0, 0.4), (1, 1, 0.6), (3, 0, 0.8))  # rank, incarnation, when


def run_job(words: Sequence[str], steps: int) -> Report:
    """Runs an example in which ranks die; returns its report.

    Args:
        words: Of the script, with its flags.
        steps: That it does.

    Raises:
        HvdFtError: It failed.
    """
    drills = [
        word
        for rank, incarnation, part in DEATHS
        for word in (
            "--inject",
            f"rank={rank},incarnation={incarnation},step={round(part * steps)}",
        )
    ]
    with tempfile.TemporaryDirectory() as scratch:
        path = str(Path(scratch) / "report.jsonl")
        job = [*HVDFT, "run", "-np", str(RANKS), "--no-live", "--report", path, *drills]
        output_of([*job, sys.executable, *words])
        return read_report(path)


def rows_of(name: str, report: Report) -> list[dict[str, object]]:
    """Returns the seconds that each rank spent in each state, one rank a row."""
    found = intervals(report.events)
    rows = []
    for rank in range(RANKS):
        row: dict[str, object] = {"job": name, "rank": rank}
        for state in (each for each in State if each is not State.DONE):
            own = [each.seconds for each in found if (each.rank, each.state) == (rank, state)]
            row[state.name.lower()] = round(sum(own), 3)
        row["deaths"] = sum(failure.rank == rank for failure in failures(report.events))
        rows.append(row)
    return rows


def main() -> int:
    """Runs both jobs; writes results.csv and a picture of each, prints the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=count, default=12, help="of the training by collectives")
    parser.add_argument("--laps", type=count, default=200, help="epochs of that by messages")
    add_output(parser, HERE)
    options = parser.parse_args()
    check_environment()
    examples = ROOT / "examples"
    jobs = {
        "collectives": ("digits_keras.py", options.epochs, 25),
        "messages": ("digits_ring.py", options.laps, 16),
    }
    rows: list[dict[str, object]] = []
    for name, (script, epochs, steps_of_epoch) in jobs.items():
        words = [str(examples / script), "--epochs", str(epochs)]
        report = run_job(words, epochs * steps_of_epoch)
        rows += rows_of(name, report)
        save_states(options.output / f"{name}.png", report.events)
        write_csv(options.output / "results.csv", rows)
    for row in rows:
        print(row)
    return 0


if __name__ == "__main__":
    end_with(main)
