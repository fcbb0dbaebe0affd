"""`hvdft status --watch`: the status on the whole terminal, until the job has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.live import Live

from hvd_ft.errors import HvdFtError
from hvd_ft.status.snapshot import JobStatus
from hvd_ft.status.table import status_view

LOOK_SECONDS = 0.1
SHOW_SECONDS = 0.5


def readings(
    look: Callable[[], None],
    read: Callable[[], JobStatus | None],
    sleep: Callable[[float], None] = time.sleep,
    every: float = SHOW_SECONDS,
) -> Iterator[JobStatus]:
    """Yields a job's status until it has ended; the last one may be of its end.

    Args:
        look: takes a quick reading.
        read: returns the status; None: the job has ended, and its files are gone.
        sleep: waits for so many seconds.
        every: seconds from one status to the next.
    """
    while (status := read()) is not None:
        yield status
        if status.state in ("over", "dead"):
            return
        for _ in range(max(round(every / LOOK_SECONDS), 1)):
            sleep(LOOK_SECONDS)
            look()


def watch(statuses: Iterator[JobStatus], console: Console) -> JobStatus | None:
    """Shows statuses on the whole terminal; afterwards the last one stays below the prompt.

    Args:
        statuses: one after the other.
        console: a terminal.

    Returns:
        The last one; None if there was none.

    Raises:
        HvdFtError: the output is no terminal on which lines can be drawn again.
    """
    if not console.is_terminal or console.is_dumb_terminal:
        raise HvdFtError(
            "--watch draws on a terminal, and the output is none; leave --watch out, or give "
            "--json too for a line each second"
        )
    last = None
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            for last in statuses:
                live.update(status_view(last, console.height), refresh=True)
    except KeyboardInterrupt:
        pass
    if last is not None:
        console.print(status_view(last))
    return last
