"""Shows a running job: a live line per rank on a terminal, otherwise one line per change."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hvd_ft.native.types import Divergence, Memory, State, Status
from hvd_ft.system.byte_size import in_words

STYLES = {
    State.STARTING: "dim",
    State.RUNNING: "green",
    State.WAITING: "yellow",
    State.RESTARTING: "bold red",
    State.REPLAYING: "magenta",
    State.DONE: "blue",
}


class Ranks(Protocol):
    """The part of `native.Observer` that has the states of ranks."""

    @property
    def size(self) -> int: ...

    def status(self, rank: int) -> Status: ...

    def memory(self, first_rank: int, *, most: bool = False) -> Memory | None: ...


class Job(Ranks, Protocol):
    """The part of `native.Observer` that is shown."""

    @property
    def divergences(self) -> int: ...

    def divergence(self, number: int) -> Divergence | None: ...


def diverged(found: Divergence) -> str:
    """Describes a divergence in a few words."""
    return f"{found.what} diverged on {found.where} at step {found.step}"


def shown(observer: Job, now_ns: int) -> RenderableType:
    """Lays out a job: its ranks, its memory, and the latest divergence if there was one.

    Args:
        observer: The job.
        now_ns: The present time, by CLOCK_MONOTONIC.
    """
    memory = Text(memory_line(observer), style="dim", no_wrap=True, overflow="ellipsis")
    lines = Group(ranks_table(observer, now_ns), memory)
    latest = observer.divergence(observer.divergences - 1) if observer.divergences else None
    if latest is None:
        return lines
    before = observer.divergences - 1
    more = f" ({before} before)" if before else ""
    return Group(lines, Text(diverged(latest) + more, style="bold red"))


def step_of(status: Status) -> str:
    """Returns the step of a rank; "" before the first step of this job, even if it was resumed."""
    return f"step {status.step}" if status.step else ""


def in_state(status: Status) -> str:
    """Describes the state of a rank. A rank that has ended may have failed: other lines say so."""
    words = "has ended" if status.state is State.DONE else f"is {status.state.name.lower()}"
    return f"{words} at {step_of(status)}" if status.step else words


def ranks_table(observer: Ranks, now_ns: int) -> Table:
    """Lays out the ranks of a job, one per row.

    Args:
        observer: The job.
        now_ns: The present time, by CLOCK_MONOTONIC.
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
            step_of(status),
            f"{seconds:5.1f} s",
            Text(times, style="dim"),
        )
    return table


def memory_line(observer: Ranks) -> str:
    """Describes the memory of the node that is nearest to its limit."""
    nodes = [(rank, now) for rank in range(observer.size) if (now := observer.memory(rank))]
    if not nodes:
        return ""
    first, now = max(nodes, key=lambda node: node[1].total / node[1].limit)
    most = observer.memory(first, most=True) or now
    whose = f" (rank {first}'s node, the fullest of {len(nodes)})" if len(nodes) > 1 else ""
    return (
        f"memory{whose}: state {in_words(now.slots)}, log {in_words(now.log + now.kept)}, "
        f"now {in_words(now.total)}, at most {in_words(most.total)} of {in_words(now.limit)}"
    )


class LiveDisplay:
    """A live line per rank and one for memory below the job's output; for a terminal."""

    takes_output = True

    def __init__(self, live: Live) -> None:
        self._live = live

    def update(self, observer: Job) -> None:
        """Redraws the lines."""
        self._live.update(shown(observer, time.monotonic_ns()), refresh=True)

    def output(self, line: str) -> None:
        """Prints a line of the job's output above the live lines."""
        self._live.console.print(Text.from_ansi(line), soft_wrap=True)


class PlainDisplay:
    """A line whenever a rank's state changes, or variables diverge; for a log file."""

    takes_output = False

    def __init__(self, console: Console) -> None:
        self._console = console
        self._seen: dict[int, tuple[State, int]] = {}
        self._divergences = 0  # printed

    def update(self, observer: Job) -> None:
        """Prints the changes since the last call: of ranks, and divergences."""
        for rank in range(observer.size):
            status = observer.status(rank)
            now = (status.state, status.incarnation)
            if self._seen.get(rank, (State.STARTING, 0)) != now:
                self._console.print(
                    f"hvdft: rank {rank} (incarnation {status.incarnation}) {in_state(status)}",
                    highlight=False,
                    soft_wrap=True,
                )
            self._seen[rank] = now
        for number in range(self._divergences, observer.divergences):
            if (found := observer.divergence(number)) is not None:
                self._console.print(f"hvdft: {diverged(found)}", highlight=False, soft_wrap=True)
        self._divergences = observer.divergences

    def output(self, line: str) -> None:
        """Never called: the job writes to this process's output itself."""
        raise AssertionError(line)


@contextlib.contextmanager
def display(console: Console, live: bool) -> Iterator[LiveDisplay | PlainDisplay]:
    """Shows a job in the `with` block.

    Args:
        console: The console to draw on.
        live: Whether to draw live lines.
    """
    if live:
        with Live(console=console, auto_refresh=False) as lines:
            yield LiveDisplay(lines)
    else:
        yield PlainDisplay(console)
