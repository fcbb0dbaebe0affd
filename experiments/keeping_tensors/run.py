"""Compares ways to keep a tensor, by its size: files of several kinds, and the arena.

Figure 8 of the paper that this project started from. README.md in this folder tells what is
measured; `python -m experiments.keeping_tensors.run --help` the flags.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from experiments.common import (
    HVDFT,
    add_output,
    count,
    directory,
    end_with,
    json_lines,
    output_of,
    write_csv,
)
from hvd_ft.installed.environment import check_environment

HERE = Path(__file__).resolve().parent
KIB = [1, 16, 256, 4 << 10, 64 << 10, 256 << 10]
COLOURS = {
    "np.savetxt": "#D55E00",
    "np.save": "#E69F00",
    "torch.save": "#CC79A7",
    "safetensors": "#009E73",
    "arena": "#0072B2",
}
Row = Mapping[str, float | str]


def measure(options: argparse.Namespace) -> Sequence[Row]:
    """Runs a job of one rank that keeps tensors in all ways; returns a row for each time.

    Raises:
        HvdFtError: the job failed.
    """
    # All that was sent is kept, as there is no training loop; and as much again is received.
    room = (2 * options.repeats * sum(options.kib) << 10) + (256 << 20)
    os.environ["HOROVOD_FT_ARENA_BYTES"] = str(room)
    sizes = ["--kib", *map(str, options.kib), "--repeats", str(options.repeats)]
    with tempfile.TemporaryDirectory(dir=options.disk) as folder:
        script = ["-m", "experiments.keeping_tensors.keep", "--folder", folder, *sizes]
        job = [*HVDFT, "run", "-np", "1", sys.executable, *script, "--limit", str(options.limit)]
        output = output_of(job)
    return json_lines(output)


def times(rows: Sequence[Row], way: str, kib: int, column: str) -> list[float]:
    """Returns what was measured of a case, in seconds."""
    return [float(row[column]) for row in rows if (row["way"], row["kib"]) == (way, kib)]


def in_words(kib: int) -> str:
    """Returns a size such as `4 MiB`."""
    return f"{kib} KiB" if kib < 1024 else f"{kib >> 10} MiB"


def plot(rows: Sequence[Row]) -> Figure:
    """Draws the medians by size, of keeping and of getting back."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    found = list(dict.fromkeys(str(row["way"]) for row in rows))
    for axes, column, title in zip(
        figure.subplots(1, 2, sharey=True),
        ("save_cpu_s", "load_cpu_s"),
        ("to keep it", "to get it back"),
        strict=True,
    ):
        for way in found:
            sizes = sorted({int(row["kib"]) for row in rows if row["way"] == way})
            medians = [statistics.median(times(rows, way, kib, column)) for kib in sizes]
            axes.loglog(sizes, medians, "o-", color=COLOURS[way], label=way)
        ticks = sorted({int(row["kib"]) for row in rows})
        axes.set_xticks(ticks, [in_words(kib) for kib in ticks], rotation=45)
        axes.minorticks_off()
        axes.set_title(title)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#DDDDDD")
    figure.axes[0].set_ylabel("seconds of CPU time")
    figure.axes[0].legend(frameon=False)
    return figure


def table(rows: Sequence[Row]) -> str:
    """Returns the medians and the spread of keeping as a Markdown table, in ms of CPU time."""
    found = list(dict.fromkeys(str(row["way"]) for row in rows))
    lines = [f"| tensor | {' | '.join(found)} |", "|--:" * (len(found) + 1) + "|"]
    for kib in sorted({int(row["kib"]) for row in rows}):
        cells = []
        for way in found:
            own = [1000 * each for each in times(rows, way, kib, "save_cpu_s")]
            spread = f"{min(own):.3g} to {max(own):.3g}" if own else ""
            cells.append(f"{statistics.median(own):.3g} ({spread})" if own else "")
        lines.append(f"| {in_words(kib)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Measures, the ways taking turns; writes results.csv and plot.png, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=count, default=5)
    parser.add_argument("--kib", type=count, nargs="*", default=KIB, help="sizes")
    parser.add_argument("--limit", type=float, default=10.0,
                        help="seconds of CPU time: a way that took longer ends there")  # fmt: skip
    parser.add_argument("--disk", type=directory, help="where the files go")
    add_output(parser, HERE)
    options = parser.parse_args()
    check_environment()
    rows = measure(options)
    write_csv(options.output / "results.csv", rows)
    plot(rows).savefig(options.output / "plot.png", dpi=150)
    print(table(rows))
    if not any(row["way"] == "torch.save" for row in rows):
        print("torch.save is left out: torch is not installed")
    return 0


if __name__ == "__main__":
    end_with(main)
