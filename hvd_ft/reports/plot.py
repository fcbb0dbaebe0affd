"""Draws every rank's state over time, like figures 9 and 10 of the paper."""

from __future__ import annotations

import io
import os
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.container import Container
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from hvd_ft.native.types import Event, State
from hvd_ft.reports.headline import steps_of
from hvd_ft.reports.report import NS, Interval, failures, intervals
from hvd_ft.system.writable import write_file

# Okabe and Ito's colours stay apart for the colour-blind; the hatches do so without colour.
COLOURS = {
    State.STARTING: "#BBBBBB",
    State.RUNNING: "#0072B2",
    State.WAITING: "#F0E442",
    State.RESTARTING: "#D55E00",
    State.REPLAYING: "#CC79A7",
}
_TITLE_LETTERS = 70
HATCHES = {State.WAITING: "..", State.RESTARTING: "xx", State.REPLAYING: "//"}


def states_figure(
    events: Sequence[Event],
    kills: Mapping[tuple[int, int], int] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Figure:
    """Draws each rank as a bar: running, waiting, restarting, replaying.

    Args:
        events: The events of the run.
        facts: As in `Report`: for the title, and the axis with steps; None: without them.
        kills: For (rank, incarnation) the time of its kill, CLOCK_MONOTONIC ns, where known;
            otherwise the mark is at the time of detection.

    Returns:
        The figure, with one axes.
    """
    bars = [bar for bar in intervals(events) if bar.state in COLOURS]
    origin_ns = min((event.time_ns for event in events), default=0)
    ranks = sorted({bar.rank for bar in bars})
    figure = Figure(figsize=(10, 1.6 + 0.55 * max(len(ranks), 1)), layout="constrained")
    axes = figure.add_subplot()
    handles: list[Artist | Container] = []
    for state, colour in COLOURS.items():
        own = [bar for bar in bars if bar.state is state]
        if not own:
            continue  # the legend explains what there is to be seen
        drawn = axes.barh(
            [bar.rank for bar in own],
            [bar.seconds for bar in own],
            left=[(bar.start_ns - origin_ns) / NS for bar in own],
            height=0.6,
            color=colour,
            hatch=HATCHES.get(state),
            edgecolor="white",
            linewidth=0,
            label=state.name.lower(),
        )
        handles.append(drawn)
    if marks := failures(events, kills):
        handles += axes.plot(
            [((mark.killed_ns or mark.failed_ns) - origin_ns) / NS for mark in marks],
            [mark.rank - 0.42 for mark in marks],
            linestyle="none",
            marker="v",
            markersize=9,
            color="black",
            label="killed" if kills else "died",
        )
    axes.set_yticks(ranks, [f"rank {rank}" for rank in ranks])
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds since the job's first process")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(left=False)
    _add_title(axes, bars, facts or {})
    _add_steps(axes, bars, origin_ns, steps=steps_of(facts or {}))
    figure.legend(
        handles=handles, loc="outside upper center", ncols=len(COLOURS) + 1, frameon=False
    )
    return figure


def _add_title(axes: Axes, bars: Sequence[Interval], facts: Mapping[str, Any]) -> None:
    """Writes which job this was, when, and how long its ranks have waited."""
    lost = {State.WAITING: "waited", State.RESTARTING: "restarting", State.REPLAYING: "replaying"}
    sums = {state: sum(bar.seconds for bar in bars if bar.state is state) for state in lost}
    times = ", ".join(f"{sums[state]:.1f} s {word}" for state, word in lost.items() if sums[state])
    job = [f"job {facts['job']}"] if "job" in facts else []
    date = [str(facts["date"])[:16].replace("T", " ")] if "date" in facts else []
    command = textwrap.shorten(shlex.join(map(str, facts.get("command", ()))), _TITLE_LETTERS)
    lines = [", ".join(filter(None, [*job, *date, command]))]
    lines += [f"all ranks together: {times}"] if times else []
    if title := "\n".join(filter(None, lines)):
        axes.set_title(title, loc="left", fontsize="medium", parse_math=False)


def _add_steps(axes: Axes, bars: Sequence[Interval], origin_ns: int, *, steps: int) -> None:
    """Adds an axis with the steps on top, in proportion to the time that a rank was running."""
    running = [bar for bar in bars if bar.state is State.RUNNING]
    if not steps or not running:
        return
    rank = min(bar.rank for bar in running)
    own = [bar for bar in running if bar.rank == rank]
    second = sum(bar.seconds for bar in own) / steps
    marks = [mark for mark in MaxNLocator(6, integer=True).tick_values(0, steps) if mark <= steps]
    at = [_moment(own, mark * second) - origin_ns / NS for mark in marks]
    above = axes.secondary_xaxis("top")
    above.set_xticks(at, [f"{mark:.0f}" for mark in marks])
    above.set_xlabel("steps, in proportion to running time")
    above.spines["top"].set_visible(False)


def _moment(own: Sequence[Interval], seconds: float) -> float:
    """Returns the moment at which a rank had been running for so many seconds."""
    for bar in own:
        if seconds <= bar.seconds:
            return bar.start_ns / NS + seconds
        seconds -= bar.seconds
    return own[-1].end_ns / NS


def save_states(
    path: str | os.PathLike[str],
    events: Sequence[Event],
    kills: Mapping[tuple[int, int], int] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Writes the picture of `states_figure` as a PNG file.

    Args:
        path: Where to.
        events: The events of the run.
        kills: As for `states_figure`.
        facts: As for `states_figure`.

    Raises:
        NotWrittenError: The file cannot be written.
    """
    write_file(path, png(states_figure(events, kills, facts)))


def png(figure: Figure) -> bytes:
    """Returns a figure as a PNG file's content."""
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=150)
    return image.getvalue()
