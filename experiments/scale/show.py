"""The picture of the scale experiment: what was counted, and what was simulated, against size."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

Row = Mapping[str, str]

COLOURS = {"node": "#E69F00", "flat": "#56B4E9", "cluster": "#009E73", "simulated": "#D55E00"}
MARKS = ("o", "s", "^", "x", "d")  # of labels
SIMULATED_OP = "1 KiB"


@dataclass(frozen=True)
class Panel:
    """A part of the picture.

    Attributes:
        title: What is shown.
        counted: The columns of results.csv whose sum it is; none: it was not counted.
        simulated: The same of simulated.csv.
        of: What of simulated.csv.
        over: What it grows with.
        kinds: Of results.csv.
    """

    title: str
    counted: Sequence[str] = ()
    simulated: Sequence[str] = ()
    of: str = SIMULATED_OP
    over: str = "nodes"
    kinds: Sequence[str] = ("flat", "cluster")


PANELS = (
    Panel(
        "messages between nodes, op of 1 KiB",
        ["op_sent_messages"],
        ["ring_messages", "mirror_messages"],
    ),
    Panel("bytes between nodes, op of 1 KiB", ["op_sent_bytes"], ["ring_bytes", "mirror_bytes"]),
    Panel("virtual time, op of 1 KiB, us", [], ["virtual_us"]),
    Panel("looks at a rank's state, op of 1 KiB", ["op_looks"], ["looks"]),
    Panel("naps of leaders, idle second", ["idle_naps"], ["leader_wakeups"], of="idle"),
    Panel(
        "CPU seconds until the first op",
        ["start_agent_cpu_s", "start_shim_cpu_s", "start_worker_cpu_s"],
        over="ranks",
        kinds=("node",),
    ),
)


def plot(results: Sequence[Row], simulated: Sequence[Row]) -> Figure:
    """Draws every panel, on logarithmic scales; of each label the counts have a mark of their own.

    Args:
        results: The rows of results.csv.
        simulated: Those of simulated.csv.
    """
    figure = Figure(figsize=(13, 7.5), layout="constrained")
    for place, panel in enumerate(PANELS):
        axes = figure.add_subplot(2, 3, place + 1)
        for kind in panel.kinds:
            _draw(axes, panel, [row for row in results if row["kind"] == kind], kind, panel.counted)
        own = [row for row in simulated if row["of"] == panel.of]
        _draw(axes, panel, own, "simulated", panel.simulated)
        axes.set(title=panel.title, xlabel=panel.over, xscale="log", yscale="log")
        axes.grid(visible=True, alpha=0.3)
        if axes.lines:
            axes.legend(fontsize="small")
    return figure


def _draw(axes: Axes, panel: Panel, rows: Sequence[Row], kind: str, columns: Sequence[str]) -> None:
    if not columns:
        return
    for number, label in enumerate(dict.fromkeys(row["label"] for row in rows)):
        own = [row for row in rows if row["label"] == label]
        axes.plot(
            [float(row[panel.over]) for row in own],
            [sum(float(row[column]) for column in columns) for row in own],
            color=COLOURS[kind],
            marker=MARKS[number % len(MARKS)],
            linestyle="--" if kind == "simulated" else "-",
            label=f"{kind}, {label}",
        )
