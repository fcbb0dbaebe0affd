"""Tables of what a job's time was used for, and what its failures have cost."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.table import Table

from hvd_ft.reports.accounting import LOST_TO_FAILURES, Account, Accounts, Use, account
from hvd_ft.reports.checkpoint_model import CheckpointsAlone, checkpoints_alone
from hvd_ft.reports.facts import Facts
from hvd_ft.reports.report import Report
from hvd_ft.system.wire import convert


def account_of(report: Report) -> Accounts:
    """Divides the time of each rank of a report."""
    of: Facts = convert({**report.facts}, Facts)
    stalls: dict[int, dict[Use, int]] = {}
    for each in of.ranks:
        own = stalls.setdefault(each.rank, {})
        if each.snapshots.count:
            own[Use.SNAPSHOTS] = each.snapshots.stall_ns
        if each.times.wait_ns:
            own[Use.SLOWER] = each.times.wait_ns
    return account(report.events, begun_ns=of.begun_ns, stalls_ns=stalls)


def alternative_of(report: Report, accounts: Accounts) -> CheckpointsAlone | None:
    """Returns what the failures of a report would have cost with checkpoints alone."""
    of: Facts = convert({**report.facts}, Facts)
    steps = max((rank.step for rank in of.ranks), default=0)
    return checkpoints_alone(report.events, accounts, steps=steps)


def goodput_line(accounts: Accounts) -> str:
    """Returns one line with the share of useful steps."""
    return f"goodput: {accounts.share(Use.STEPS):.1%} of the ranks' time went into useful steps"


def accounts_table(accounts: Accounts) -> Table | None:
    """Lays out what the time of each rank was used for, in percent, one rank a row.

    Returns:
        The table, with a last row for the job; None if there was no time.
    """
    if not accounts.total_ns:
        return None
    uses = [use for use in Use if use is Use.STEPS or accounts.share(use)]
    title = "What the time was used for, in percent of a rank's time"
    # Without lines between columns it has room on a terminal of 80 columns.
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column("rank")
    for use in uses:
        table.add_column(use, justify="right")
    for own in accounts.ranks:
        table.add_row(str(own.rank), *(_percent(own, use, accounts) for use in uses))
    table.add_section()
    table.add_row("all", *(f"{100 * accounts.share(use):.1f}" for use in uses))
    table.add_row("seconds", *(f"{accounts.seconds(use):.2f}" for use in uses))
    return table


def _percent(own: Account, use: Use, accounts: Accounts) -> str:
    return f"{100 * own.ns(use) / (accounts.end_ns - accounts.begin_ns):.1f}"


def cost_table(accounts: Accounts, other: CheckpointsAlone | None) -> Table | None:
    """Lays out what the failures have cost, beside a restart from the last checkpoint.

    Returns:
        The table; None if no worker died.
    """
    if not accounts.outages:
        return None
    title = "What the failures cost, in seconds of the job"
    table = Table(title=title, title_justify="left")
    for name in ("", "hvd_ft", "restart from the last checkpoint"):
        table.add_column(name, justify="right" if name else "left")
    count = f"{len(accounts.outages)}"
    table.add_row("times that ranks were away", count, count)
    lost = {use: accounts.seconds(use) for use in LOST_TO_FAILURES}
    noticed = lost[Use.DETECTION]
    times = len(accounts.outages)
    table.add_row("until a death was noticed", f"{noticed:.2f}", f"{noticed:.2f}")
    each = f"{times} x {other.restart_seconds:.2f}" if other else "-"
    table.add_row("restart", f"{lost[Use.RESTART]:.2f}", each)
    again = f"{sum(other.redone_seconds):.2f}" if other else "-"
    table.add_row("work done again", f"{lost[Use.REPLAY]:.2f}", again)
    if other and other.steps_redone is not None:
        table.add_row("steps that all ranks do again", "0", str(other.steps_redone))
    saving = accounts.seconds(Use.SNAPSHOTS)
    table.add_row("snapshots, checkpoints", f"{saving:.2f}", "not counted")
    table.add_section()
    total = f"{noticed + other.seconds:.2f}" if other else "-"
    table.add_row("together", f"{sum(lost.values()) + saving:.2f}", total)
    return table


def model_line(other: CheckpointsAlone | None) -> str:
    """Returns one line with the model behind the comparison."""
    if other is None:
        return (
            "There is nothing to compare with: a rank died before all ranks had started, so it is "
            "not known how long a restart of the job takes."
        )
    if other.checkpoints:
        behind = f"the {other.checkpoints} checkpoints that this job wrote"
    else:
        behind = (
            f"one checkpoint after every {other.interval_seconds:g} s of training, as this job "
            "wrote none"
        )
    return (
        f"The comparison assumes {behind}, and that a restart takes as long as this job's start, "
        f"{other.restart_seconds:.2f} s."
    )
