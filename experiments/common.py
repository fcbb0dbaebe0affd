"""What the experiments share: how their results are written, and how they end."""

import csv
import json
import os
import signal
import sys
import tempfile
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE, CompletedProcess, Popen, TimeoutExpired
from typing import Any, NoReturn

from hvd_ft.errors import HvdFtError
from hvd_ft.reports.report import Report, read_report
from hvd_ft.system.stop_signals import STOP_SIGNALS, raised_stop_signal
from hvd_ft.tools.cluster.cluster_dir import ClusterDir

ROOT = Path(__file__).resolve().parents[1]
HVDFT = [sys.executable, "-m", "hvd_ft.cli"]
os.environ.setdefault("HOROVOD_FT_OUTPUT_PREFIX", "none")  # lines of ranks are read as they are
_END_SECONDS = 60  # hvdft run has limits of its own, which are shorter


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


def directory(text: str) -> Path:
    """Makes the directory of an option, if it is not there.

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


def add_output(parser: ArgumentParser, folder: Path) -> None:
    """Adds the options that say where results go, as `output`.

    Committed results are overwritten only with `--commit`.

    Args:
        parser: Of the experiment's command line.
        folder: The experiment's, which has its committed results.
    """
    where = parser.add_mutually_exclusive_group()
    own = ROOT / "out" / folder.name
    where.add_argument(
        "--output",
        type=directory,
        default=str(own),
        metavar="DIR",
        help=f"where results and pictures go (default: {own.relative_to(ROOT)})",
    )
    where.add_argument(
        "--commit",
        dest="output",
        action="store_const",
        const=folder,
        help=f"they overwrite those in {folder.relative_to(ROOT)}, to be committed",
    )


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


def read_csv(path: Path) -> list[dict[str, str]]:
    """Returns the rows of a file that was written before; none if it is not there."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def json_lines(output: str) -> list[dict[str, Any]]:
    """Returns the objects that a job has printed, a line each, among others."""
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


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
def cluster_up(
    name: str, nodes: int, rate: str | None = None, delay: str | None = None
) -> Iterator[str]:
    """Hosts out of namespaces; needs root. However the block ends, nothing is left of them.

    Args:
        name: the cluster's name begins with it.
        nodes: how many hosts.
        rate: of their links, such as `1gbit`; None: unlimited.
        delay: from one to another, such as `1ms`; None: none is added.

    Yields:
        The cluster's name.

    Raises:
        HvdFtError: They cannot be made.
    """
    name = f"{name}-{os.getpid()}"
    try:
        links = [*(["--rate", rate] if rate else []), *(["--delay", delay] if delay else [])]
        _cluster(name, "up", "-n", str(nodes), *links)
        yield name
    finally:
        # Also when it was being made: its processes outlive the command that makes it.
        if ClusterDir(name).exists():
            _cluster(name, "down")


def inside(cluster: str) -> list[str]:
    """Returns the words that run a command on a cluster's first node."""
    return [*HVDFT, "cluster", "run", "--name", cluster, "--"]


def _cluster(name: str, command: str, *words: str) -> None:
    ended = run_to_end([*HVDFT, "cluster", command, "--name", name, *words], stdout=DEVNULL)
    if ended.returncode:
        raise HvdFtError(f"hvdft cluster {command} failed, see above")


@contextmanager
def _late_stop_signals() -> Iterator[list[int]]:
    """Collects stop signals that have a handler; after the `with` block they can be raised."""
    late: list[int] = []
    heeded = [number for number in STOP_SIGNALS if callable(signal.getsignal(number))]
    before = {number: signal.signal(number, lambda n, _: late.append(n)) for number in heeded}
    try:
        yield late
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_to_end(
    command: Sequence[str], limit_seconds: float | None = None, **options: Any
) -> CompletedProcess[Any]:
    """Runs a command in the checkout's folder.

    If this process has to end before, or the limit is over, the command is ended first, in order.

    Args:
        command: Its words.
        limit_seconds: How long it may take; None: as long as it takes.
        options: Of `subprocess.Popen`.

    Returns:
        The command as it ended, with what it wrote into pipes.

    Raises:
        HvdFtError: It took longer.
    """
    with _late_stop_signals() as late:  # a command that is half started could not be ended
        given: dict[str, Any] = {"cwd": ROOT, "stdin": DEVNULL} | options
        process = Popen(command, **given)
    with process:
        try:
            for number in late:
                signal.raise_signal(number)
            out, errors = process.communicate(timeout=limit_seconds)
        except BaseException as reason:
            process.terminate()
            try:
                process.communicate(timeout=_END_SECONDS)
            except TimeoutExpired:
                process.kill()
            if isinstance(reason, TimeoutExpired):
                raise HvdFtError(f"took longer than {limit_seconds:g} s: {command}") from None
            raise
    return CompletedProcess(command, process.returncode, out, errors)


def output_of(command: Sequence[str]) -> str:
    """Runs a job in the checkout's folder; returns what it has written to standard output.

    Raises:
        HvdFtError: It failed.
    """
    ended = run_to_end(command, stdout=PIPE, stderr=PIPE, text=True)
    if ended.returncode != 0:
        raise HvdFtError(f"the job ended with exit code {ended.returncode}:\n{ended.stderr}")
    return str(ended.stdout)


def largest_share(report: Report, part: str) -> float:
    """Returns the share of the training time that snapshots took, of the rank with the most.

    Args:
        report: Of a job that has ended.
        part: `stall_ns` or `copy_ns`.

    Returns:
        Percent.
    """
    costs = [rank["snapshots"] for rank in report.facts["ranks"]]
    shares = [100.0 * cost[part] / max(cost["training_ns"], 1) for cost in costs]
    return round(float(max(shares)), 2)


def end_with(main: Callable[[], int]) -> NoReturn:
    """Runs an experiment and ends with its exit code; a failed job is reported in one line.

    A stop signal ends it in order: what it has started ends too.
    """
    try:
        with raised_stop_signal():
            sys.exit(main())
    except HvdFtError as error:
        sys.exit(f"hvdft: {error}")
