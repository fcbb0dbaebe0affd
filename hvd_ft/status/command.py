"""`hvdft status`: its flags, which job it is about, and in which form that is shown."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from rich.console import Console

from hvd_ft.errors import HvdFtError
from hvd_ft.job.report_file import read_report_path
from hvd_ft.job.running import find_job, running_jobs
from hvd_ft.job.settings import Settings
from hvd_ft.system.command_line import AddCommand
from hvd_ft.system.say import answer

if TYPE_CHECKING:  # `hvdft` begins with this file whatever the command
    from rich.table import Table

    from hvd_ft.status.sight import Sight
    from hvd_ft.status.snapshot import JobStatus

_JSON_SECONDS = 1.0  # from line to line
_ENDED = ("over", "dead")
_FILE_COLUMNS = 160


def add_status(commands: Any, add: AddCommand) -> None:
    """Adds `status` to the command line.

    Args:
        commands: where to.
        add: makes a command's parser of its place, name, help and example.
    """
    purpose = "show what a running job is doing, on any of its hosts"
    status = add(commands, "status", purpose, "hvdft status --watch")
    status.add_argument(
        "job",
        nargs="?",
        metavar="JOB",
        help="a running job's id, or its directory (default: the only one of yours on this host; "
        "several are listed)",
    )
    status.add_argument(
        "--json",
        action="store_true",
        help="print JSON instead (docs/reference/status.schema.json); with --watch a line each "
        "second",
    )
    status.add_argument(
        "--watch",
        action="store_true",
        help="show it on the whole terminal, refreshed, until the job ends or Ctrl-C",
    )
    status.set_defaults(handler=_status)


def _status(options: argparse.Namespace) -> int:
    from hvd_ft.status.sight import Sight

    console = _console()
    if options.job is None:
        jobs = running_jobs(Settings.from_env(os.environ).arena_dir)
        if len(jobs) > 1 and not (options.json or options.watch):
            console.print(jobs_table([_summary(job) for job in jobs]))
            return 0
    sight = Sight(find_job(options.job))
    try:
        _show(sight, options, console)
    except KeyboardInterrupt:
        if not options.watch:
            raise
    finally:
        sight.close()
    return 0


def _console() -> Console:
    """Returns where the status is printed: in a file lines break less often than on a terminal."""
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(width=_FILE_COLUMNS)
    return console


def _show(sight: Sight, options: argparse.Namespace, console: Console) -> None:
    from hvd_ft.status.table import status_view
    from hvd_ft.status.watch import readings, watch

    if options.watch and options.json:
        for status in readings(sight.look, sight.read, every=_JSON_SECONDS):
            answer(to_json(status))
    elif options.watch:
        last = watch(readings(sight.look, sight.read), console)
        if sight.has_ended or (last and last.state in _ENDED):
            console.print(end_line(last), highlight=False, markup=False, soft_wrap=True)
    else:
        first = sight.measured()
        answer(to_json(first)) if options.json else console.print(status_view(first))
        if first.state in _ENDED and not options.json:
            console.print(end_line(first), highlight=False, markup=False, soft_wrap=True)


def to_json(status: JobStatus) -> str:
    """Returns a status as one line of JSON."""
    import msgspec

    return msgspec.json.encode(status).decode()


def end_line(last: JobStatus | None) -> str:
    """Returns the line about a job that has ended."""
    if last is None:
        return "the job has ended"
    if last.state == "dead":
        return (
            f"no process of job {last.job} is left on this host: hvdft clean {last.job} removes "
            f"its files, and hvdft run --resume {last.job} resumes it if it can be"
        )
    if last.report is None:
        return f"job {last.job} has ended; it has no report that is known here"
    return f"job {last.job} has ended; hvdft report {last.report} shows what happened"


def _summary(job: str) -> tuple[str, ...]:
    """Returns the cells of a job in the list of several."""
    from hvd_ft.status.sight import Sight

    directory = find_job(job)
    try:
        sight = Sight(directory)
    except HvdFtError as error:
        return job, str(error), "", "", ""
    try:
        status = sight.measured()
    finally:
        sight.close()
    report = read_report_path(directory) or "-"
    return job, status.state, str(status.size), str(status.step), report


def jobs_table(jobs: list[tuple[str, ...]]) -> Table:
    """Lays out the jobs of this host, one a row."""
    from rich.table import Table

    table = Table(title="hvdft status JOB shows one of them", title_justify="left", box=None)
    for name in ("job", "state", "ranks", "step", "report"):
        table.add_column(name)
    for cells in jobs:
        table.add_row(*cells)
    return table
