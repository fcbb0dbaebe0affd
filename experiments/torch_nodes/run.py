"""Compares allreduces of PyTorch tensors between nodes: ft, stock Horovod over MPI, Gloo.

Makes the nodes out of namespaces, so it needs root. README.md in this folder tells what is
measured; `python -m experiments.torch_nodes.run --help` the flags.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from experiments.common import (
    HVDFT,
    ROOT,
    add_output,
    cluster_up,
    count,
    end_with,
    inside,
    run_to_end,
    write_csv,
)
from experiments.sides import empty_log
from hvd_ft.errors import HvdFtError
from hvd_ft.installed.environment import check_environment
from hvd_ft.mpi.environment import mpi_environment, mpiexec_command
from hvd_ft.tools.bench.backends import stock_environment

HERE = Path(__file__).resolve().parent
RATE = "1gbit"
PLACEMENT = (4, 2, 2)  # ranks of each node
SIZES = [64 << 10, 1 << 20, 16 << 20]  # bytes
BACKENDS = {"ft": "#0072B2", "mpi": "#D55E00", "gloo": "#009E73"}  # and their colours
LIMIT_SECONDS = 400
Row = Mapping[str, object]


def command_of(backend: str, machines: Path) -> tuple[list[str], dict[str, str]]:
    """Returns the beginning of a job's command line, and its environment.

    Args:
        backend: of BACKENDS. MPI only starts the job of `gloo`.
        machines: a file for the names of the nodes, which is written if it is needed.

    Raises:
        HvdFtError: Intel MPI is absent.
    """
    ranks = str(sum(PLACEMENT))
    if backend == "ft":
        hosts = ",".join(f"n{node}:{slots}" for node, slots in enumerate(PLACEMENT))
        run = [*HVDFT, "run", "--no-live", "-np", ranks, "-H", hosts]
        return run, dict(os.environ)
    machines.write_text("".join(f"n{node}:{slots}\n" for node, slots in enumerate(PLACEMENT)))
    environment = stock_environment() | {
        "PATH": mpi_environment(one_host=False)["PATH"],
        "I_MPI_HYDRA_BOOTSTRAP": "ssh",
        "GLOO_SOCKET_IFNAME": "eth0",
    }
    start = mpiexec_command(int(ranks), environment)
    return [*start, "-machinefile", str(machines)], environment


def measure(cluster: str, backend: str, turn: int, iterations: int, log: Path) -> list[Row]:
    """Runs one backend's job on the cluster; returns its rows of results.csv, one for each size.

    Raises:
        HvdFtError: the job failed, or a result was wrong.
    """
    with tempfile.TemporaryDirectory() as folder, log.open("ab") as output:
        notes = Path(folder)
        start, environment = command_of(backend, notes / "machines")
        script = [sys.executable, "-m", "experiments.torch_nodes.worker", "--notes", folder]
        flags = ["--iterations", str(iterations), "--sizes", *map(str, SIZES)]
        ended = run_to_end(
            [*inside(cluster), *start, *script, *(["--gloo"] if backend == "gloo" else []), *flags],
            LIMIT_SECONDS,
            env={**environment, "PYTHONPATH": str(ROOT)},
            stdout=output,
            stderr=output,
        )
        files = list(notes.glob("*.json"))
        if ended.returncode or len(files) != sum(PLACEMENT):
            raise HvdFtError(f"the job of {backend} failed; its output is in {log}")
        ranks = [json.loads(file.read_text()) for file in files]
    return [row(backend, turn, size, [each[str(size)] for each in ranks]) for size in SIZES]


def row(backend: str, turn: int, size: int, ranks: Sequence[Mapping[str, object]]) -> Row:
    """Returns a row of results.csv: an iteration takes as long as on the slowest rank.

    Args:
        backend: of BACKENDS.
        turn: of the backends, from 0.
        size: bytes of the tensor.
        ranks: `seconds` of each iteration and the `wrong` elements, of each rank.

    Raises:
        HvdFtError: an element was wrong.
    """
    if any(each["wrong"] for each in ranks):
        raise HvdFtError(f"{backend} has summed {size} bytes wrong; do not use this backend")
    slowest = map(max, *(each["seconds"] for each in ranks))  # type: ignore[call-overload]
    milliseconds = [1000 * seconds for seconds in slowest]
    return {
        "backend": backend,
        "turn": turn,
        "bytes": size,
        "median_ms": round(statistics.median(milliseconds), 3),
        "min_ms": round(min(milliseconds), 3),
    }


def medians(rows: Sequence[Row], backend: str, size: int) -> list[float]:
    """Returns the median of each turn of a backend with a size, in milliseconds."""
    own = [each for each in rows if (each["backend"], each["bytes"]) == (backend, size)]
    return [float(str(each["median_ms"])) for each in own]


def table(rows: Sequence[Row]) -> str:
    """Returns medians of the turns with their spread, and ratios, as a Markdown table."""
    lines = [
        "| bytes | ft ms | mpi ms | gloo ms | mpi/ft | gloo/ft |",
        "|--:|--:|--:|--:|--:|--:|",
    ]
    for size in SIZES:
        own = {backend: medians(rows, backend, size) for backend in BACKENDS}
        if all(own.values()):
            cells = [
                f"{statistics.median(each):.2f} ({min(each):.2f} to {max(each):.2f})"
                for each in own.values()
            ]
            ft = statistics.median(own["ft"])
            ratios = [f"{statistics.median(own[name]) / ft:.2f}" for name in ("mpi", "gloo")]
            lines.append(f"| {' | '.join([str(size), *cells, *ratios])} |")
    return "\n".join(lines)


def plot(rows: Sequence[Row]) -> Figure:
    """Draws each backend's median as a bar and its turns as points, a panel for each size."""
    figure = Figure(figsize=(8, 3), layout="constrained")
    for axes, size in zip(figure.subplots(1, len(SIZES)), SIZES, strict=True):
        for place, (backend, colour) in enumerate(BACKENDS.items()):
            if own := medians(rows, backend, size):
                axes.bar(place, statistics.median(own), 0.6, color=colour)
                axes.plot([place] * len(own), own, "k.", markersize=5)
        axes.set_xticks(range(len(BACKENDS)), list(BACKENDS))
        axes.set_title(f"{size >> 10} KiB", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    figure.supylabel("milliseconds of an allreduce, median", fontsize=10)
    return figure


def main() -> int:
    """Measures, the backends taking turns; writes results.csv and plot.png, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=count, default=5)
    parser.add_argument("--iterations", type=count, default=20)
    add_output(parser, HERE)
    options = parser.parse_args()
    check_environment()
    log = empty_log("torch_nodes")
    rows: list[Row] = []
    with cluster_up("torch", len(PLACEMENT), RATE) as cluster:
        for turn in range(options.turns):
            for backend in BACKENDS if turn % 2 == 0 else reversed(BACKENDS):
                rows += measure(cluster, backend, turn, options.iterations, log)
                print(*rows[-len(SIZES) :], sep="\n", flush=True)
                write_csv(options.output / "results.csv", rows)
    plot(rows).savefig(options.output / "plot.png", dpi=150)
    print(table(rows))
    return 0


if __name__ == "__main__":
    end_with(main)
