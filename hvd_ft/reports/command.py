"""`hvdft report`: shows what happened in a run."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console

from hvd_ft.errors import HvdFtError
from hvd_ft.system.command_line import AddCommand
from hvd_ft.system.say import answer
from hvd_ft.system.writable import check_writable, write_file


def add_report(commands: Any, add: AddCommand) -> None:
    """Adds `report` to the command line.

    Args:
        commands: Where to.
        add: Makes a command's parser of its place, name, help and example.
    """
    report = add(
        commands,
        "report",
        "show what happened in a run, and what its failures cost, from its report",
        "hvdft report events.jsonl --html",
    )
    report.add_argument(
        "events", metavar="FILE", help="a file written by hvdft run --report, or a flight record"
    )
    report.add_argument("--picture", metavar="FILE", help="draw each rank's state over time (PNG)")
    report.add_argument(
        "--html",
        nargs="?",
        const="",
        metavar="FILE",
        help="write everything as one page that needs nothing else "
        "(default: beside the report, as .html)",
    )
    report.add_argument(
        "--trace",
        nargs="?",
        const="",
        metavar="FILE",
        help="write what each rank did as a Chrome trace, which ui.perfetto.dev opens "
        "(default: beside the report, as .trace.json)",
    )
    report.set_defaults(handler=show_report)


def show_report(options: argparse.Namespace) -> int:
    """Shows a report; returns the exit code."""
    from hvd_ft.reports import report
    from hvd_ft.reports.pieces import pieces_of

    told = report.read_report(options.events)
    html = _beside(options.events, options.html, ".html")
    trace = _beside(options.events, options.trace, ".trace.json")
    check_writable(options.picture, html, trace)
    console = Console()
    for piece in pieces_of(told):
        if isinstance(piece, str):
            # In a file, and for other programs, a line stays one.
            whole = not console.is_terminal
            console.print(piece, highlight=False, soft_wrap=whole, markup=False)
        else:
            console.print(piece)
    if options.picture:
        from hvd_ft.reports.plot import save_states

        save_states(options.picture, told.events, facts=told.facts)
    if html:
        from hvd_ft.reports.page import page_of

        write_file(html, page_of(told).encode("utf-8", errors="replace"))
        answer(f"the page is in {html}")
    if trace:
        from hvd_ft.reports.trace import trace_of

        write_file(trace, json.dumps(trace_of(told)).encode("ascii"))
        answer(f"the trace is in {trace}; open it at ui.perfetto.dev")
    return 0


def _beside(report: str, given: str | None, suffix: str) -> str | None:
    """Returns the file for another form of the report; None if that is not requested.

    Args:
        report: Its file.
        given: What the flag names; "": a file beside the report, None: nothing.
        suffix: Of such a file.

    Raises:
        HvdFtError: It is the report itself.
    """
    if given is None:
        return None
    path = Path(given or Path(report).with_suffix(suffix))
    if path.resolve() == Path(report).resolve():
        raise HvdFtError(f"{path} is the report itself, which would be lost; give another file")
    return str(path)
