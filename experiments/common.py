"""What the experiments share: how their results are written, and how they end."""

import csv
import json
import os
import subprocess
import sys
import tempfile
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from hvd_ft.errors import HvdFtError
from hvd_ft.reports.report import Report, read_report

ROOT = Path(__file__).resolve().parents[1]
HVDFT = [sys.executable, "-m", "hvd_ft.cli"]


def count(text: str) -> int:
    """Returns an option's number, which is at least 1.

    Args:
        text: The number.

    Raises:
        ArgumentTypeError: It is less, or none.
    """
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text} is no count: give a whole number, 1 or more")
    return int(text)


def output_directory(text: str) -> Path:
    """Makes the directory of an option `--output`, if it is not there.

    Args:
        text: Its path.

    Returns:
        The same.

    Raises:
        ArgumentTypeError: It cannot be made.
    """
    try:
        Path(text).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentTypeError(f"cannot make the directory {text}: {error.strerror}") from None
    return Path(text)


def write_csv(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Writes what was measured so far.

    Args:
        path: Of the file.
        rows: One a line, at least one; all with the same names, which are the columns.
    """
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def run_training(
    job_flags: Sequence[str], script: Path, flags: Sequence[str]
) -> tuple[dict[str, Any], Report]:
    """Runs a job whose rank 0 prints a line `RESULT {…}`.

    Args:
        job_flags: of `hvdft run`.
        script: of the workers, in Python.
        flags: of the script.

    Returns:
        What rank 0 has printed, and the job's report.

    Raises:
        HvdFtError: The job failed.
    """
    with tempfile.TemporaryDirectory() as scratch:
        path = str(Path(scratch) / "report.jsonl")
        launch = [*HVDFT, "run", "--report", path, *job_flags]
        output = output_of([*launch, sys.executable, str(script), *flags])
        report = read_report(path)
    return result_of(output), report


def result_of(output: str) -> dict[str, Any]:
    """Returns what rank 0 has printed in a line `RESULT {…}`."""
    [line] = [line for line in output.splitlines() if line.startswith("RESULT")]
    found: dict[str, Any] = json.loads(line[7:])
    return found


@contextmanager
def cluster_up(name: str, nodes: int, rate: str) -> Iterator[str]:
    """Hosts out of namespaces; needs root.

    Args:
        name: the cluster's name begins with it.
        nodes: how many hosts.
        rate: of their links, such as `1gbit`.

    Yields:
        The cluster's name.

    Raises:
        HvdFtError: They cannot be made.
    """
    name = f"{name}-{os.getpid()}"
    _cluster(name, "up", "-n", str(nodes), "--rate", rate)
    try:
        yield name
    finally:
        _cluster(name, "down")


def _cluster(name: str, command: str, *words: str) -> None:
    ended = subprocess.run(
        [*HVDFT, "cluster", command, "--name", name, *words], check=False, stdout=subprocess.DEVNULL
    )
    if ended.returncode:
        raise HvdFtError(f"hvdft cluster {command} failed, see above")


def output_of(command: Sequence[str]) -> str:
    """Runs a job in the checkout's folder; returns what it has written to standard output.

    Raises:
        HvdFtError: It failed.
    """
    ended = subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if ended.returncode != 0:
        raise HvdFtError(f"the job ended with exit code {ended.returncode}:\n{ended.stderr}")
    return ended.stdout


def largest_share(report: Report, part: str) -> float:
    """Returns the share of the training time that snapshots took, of the rank with the most.

    Args:
        report: Of a job that has ended.
        part: `stall_ns` or `copy_ns`.

    Returns:
        Percent.
    """
    costs = [rank["snapshots"] for rank in report.facts["ranks"]]
    return round(max(100 * cost[part] / max(cost["training_ns"], 1) for cost in costs), 2)


def end_with(main: Callable[[], int]) -> NoReturn:
    """Runs an experiment and ends with its exit code; a failed job is reported in one line."""
    try:
        sys.exit(main())
    except HvdFtError as error:
        sys.exit(f"hvdft: {error}")
