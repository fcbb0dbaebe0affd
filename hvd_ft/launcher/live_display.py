"""Shows a running job: a live line per rank on a terminal, otherwise a line for each change."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hvd_ft.native.types import State, Status

STYLES = {
    State.STARTING: "dim",
    State.RUNNING: "green",
    State.WAITING: "yellow",
    State.RESTARTING: "bold red",
    State.REPLAYING: "magenta",
    State.DONE: "blue",
}


class Ranks(Protocol):
    """The part of `native.Observer` that is shown."""

    @property
    def size(self) -> int: ...

    def status(self, rank: int) -> Status: ...


def ranks_table(observer: Ranks, now_ns: int) -> Table:
    """Lays out the ranks of a job, one a row.

    Args:
        observer: The job.
        now_ns: The present, CLOCK_MONOTONIC.
    """
    table = Table.grid(padding=(0, 2))
    for rank in range(observer.size):
        status = observer.status(rank)
        seconds = max(now_ns - status.since_ns, 0) / 1e9 if status.since_ns else 0.0
        times = {0: "", 1: "restarted once"}.get(
            status.incarnation, f"restarted {status.incarnation} times"
        )
        table.add_row(
            f"rank {rank}",
            Text(status.state.name.lower(), style=STYLES[status.state]),
            f"step {status.step}",
            f"{seconds:5.1f} s",
            Text(times, style="dim"),
        )
    return table


class LiveDisplay:
    """A live line per rank, with the job's output above; for a terminal."""

    takes_output = True

    def __init__(self, live: Live) -> None:
        self._live = live

    def update(self, observer: Ranks) -> None:
        """Redraws the lines."""
        self._live.update(ranks_table(observer, time.monotonic_ns()), refresh=True)

    def output(self, line: str) -> None:
        """Prints a line of the job's output above the live lines."""
        self._live.console.print(Text.from_ansi(line), soft_wrap=True)


class PlainDisplay:
    """A line whenever a rank's state changes; for a log file."""

    takes_output = False

    def __init__(self, console: Console) -> None:
        self._console = console
        self._seen: dict[int, tuple[State, int]] = {}

    def update(self, observer: Ranks) -> None:
        """Prints the ranks whose state or incarnation has changed since the last call."""
        for rank in range(observer.size):
            status = observer.status(rank)
            now = (status.state, status.incarnation)
            if self._seen.get(rank, (State.STARTING, 0)) != now:
                self._console.print(
                    f"hvdft: rank {rank} (incarnation {status.incarnation}) is "
                    f"{status.state.name.lower()} at step {status.step}",
                    highlight=False,
                    soft_wrap=True,
                )
            self._seen[rank] = now

    def output(self, line: str) -> None:
        """Never called: the job writes to this process's output itself."""
        raise AssertionError(line)


@contextlib.contextmanager
def display(console: Console, live: bool) -> Iterator[LiveDisplay | PlainDisplay]:
    """Shows a job in the `with` block.

    Args:
        console: Where to.
        live: Whether to draw live lines.
    """
    if live:
        with Live(console=console, auto_refresh=False) as lines:
            yield LiveDisplay(lines)
    else:
        yield PlainDisplay(console)
