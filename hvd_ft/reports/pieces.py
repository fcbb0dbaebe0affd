"""What a report says, in order: lines of text and tables, for a terminal or a page."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from hvd_ft.reports import cost_table, report
from hvd_ft.reports.headline import headline, identity
from hvd_ft.reports.memory_table import memory_table

_FAILURES_BESIDE = 4  # so that a table fits into 80 columns


def pieces_of(told: report.Report) -> Iterator[str | Table]:
    """Returns the headline, what happened, and what it has cost.

    Args:
        told: The report.
    """
    yield headline(told)
    yield identity(told)
    found = report.failures(told.events)
    if not found:
        yield "No worker died."
    for first in range(0, len(found), _FAILURES_BESIDE):
        yield report.failures_table(found[first : first + _FAILURES_BESIDE])
    yield from report.cause_lines(told)
    yield from report.replacement_lines(told)
    yield from report.slow_lines(told)
    accounts = cost_table.account_of(told)
    other = cost_table.alternative_of(told, accounts)
    costs = cost_table.cost_table(accounts, other)
    tables = [
        report.divergences_table(told.divergences),
        report.states_table(report.intervals(told.events)),
        report.snapshots_table(told.facts.get("ranks", ())),
        memory_table(told.facts),
        cost_table.accounts_table(accounts),
        costs,
    ]
    yield from (table for table in tables if table)
    if costs:
        yield cost_table.model_line(other)
    if accounts.total_ns:
        yield cost_table.goodput_line(accounts)
