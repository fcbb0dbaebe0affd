"""Draws every rank's state over time, like figures 9 and 10 of the paper."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence

from matplotlib.artist import Artist
from matplotlib.container import Container
from matplotlib.figure import Figure

from hvd_ft.native.types import Event, State
from hvd_ft.reports.report import NS, failures, intervals
from hvd_ft.system.writable import write_file

# Okabe and Ito's colours stay apart for the colour-blind; the hatches do so without colour.
COLOURS = {
    State.STARTING: "#BBBBBB",
    State.RUNNING: "#0072B2",
    State.WAITING: "#F0E442",
    State.RESTARTING: "#D55E00",
    State.REPLAYING: "#CC79A7",
}
HATCHES = {State.WAITING: "..", State.RESTARTING: "xx", State.REPLAYING: "//"}


def states_figure(
    events: Sequence[Event], kills: Mapping[tuple[int, int], int] | None = None
) -> Figure:
    """Draws each rank as a bar: running, waiting, restarting, replaying.

    Args:
        events: The events of the run.
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
    figure.legend(
        handles=handles, loc="outside upper center", ncols=len(COLOURS) + 1, frameon=False
    )
    return figure


def save_states(
    path: str | os.PathLike[str],
    events: Sequence[Event],
    kills: Mapping[tuple[int, int], int] | None = None,
) -> None:
    """Writes the picture of `states_figure` as a PNG file.

    Args:
        path: Where to.
        events: The events of the run.
        kills: As for `states_figure`.

    Raises:
        NotWrittenError: The file cannot be written.
    """
    write_file(path, png(states_figure(events, kills)))


def png(figure: Figure) -> bytes:
    """Returns a figure as a PNG file's content."""
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=150)
    return image.getvalue()
