"""`hvdft report`: shows what happened in a run."""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console

from hvd_ft.system.command_line import AddCommand
from hvd_ft.system.writable import check_writable


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
        "hvdft report events.jsonl --picture states.png",
    )
    report.add_argument("events", metavar="FILE", help="a file written by hvdft run --report")
    report.add_argument("--picture", metavar="FILE", help="draw each rank's state over time (PNG)")
    report.set_defaults(handler=_report)


def _report(options: argparse.Namespace) -> int:
    from hvd_ft.reports import report
    from hvd_ft.reports.pieces import pieces_of

    check_writable(options.picture)
    told = report.read_report(options.events)
    console = Console()
    for piece in pieces_of(told):
        if isinstance(piece, str):
            console.print(piece, highlight=False, soft_wrap=True, markup=False)
        else:
            console.print(piece)
    if options.picture:
        from hvd_ft.reports.plot import save_states

        save_states(options.picture, told.events)
    return 0
