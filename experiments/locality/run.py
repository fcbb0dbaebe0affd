"""Measures allreduces of ranks placed on nodes in several ways.

README.md in this folder tells what is measured; `python -m experiments.locality.run --help` the
flags.
"""

import argparse
import csv
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from itertools import product
from pathlib import Path

from experiments.common import (
    HVDFT,
    ROOT,
    add_output,
    cluster_up,
    count,
    end_with,
    inside,
    json_lines,
    run_to_end,
)
from experiments.locality.placements import Placement, parse, parse_list
from experiments.locality.show import placements_table, plot, plot_placements, plot_unlimited, table
from experiments.locality.times import UNSPLIT
from hvd_ft.errors import HvdFtError
from hvd_ft.members.hosts import host_list, machine_file
from hvd_ft.tools.bench.machine import facts

HERE = Path(__file__).resolve().parent
PIPELINED = ("endpoints", "one endpoint")
SPLIT = ("serial", "irecv_send_wait", *PIPELINED)
FT = ("hierarchical",)  # not of mpirun but of hvdft run
CORE = ("core",)  # the same without TensorFlow
STOCK = ("horovod",)
# What the explanation is put to the test with: it has to hold for placements it was not made for.
PLACEMENTS = "4-2-2,4-3-1,6-1-1,3-3-2,round-robin:4-2-2"
TESTED = (*SPLIT, "by host")
# A step of a training has its allreduces in one call of TensorFlow's, and that takes eight ranks
# on two CPUs as long as some of them. Large ones are few, or they take too long.
IN_A_ROW, LARGE_IN_A_ROW = 32, 8
# Of the links, unless the user says others: where links are slow, nothing else is the limit.
RATES = {
    "links": "1gbit,none,200mbit",
    "placements": "50mbit",
    "sizes": "1gbit,none,200mbit",
    "node": "memory",
}


@dataclass(frozen=True)
class Cell:
    """What one job measures.

    Attributes:
        part: Which question it belongs to: `links`, `placements`, `sizes` or `node`.
        rate: Of the links; `none` is unlimited, `as is` a real cluster's, `memory` one node.
        placement: Ranks of each node, as in 4-3-1; see placements.py.
        bytes: Sizes of the array.
        sides: What takes turns within the job.
        repeats: Of each side.
        in_a_row: Allreduces of a repeat, one after the other.
    """

    part: str
    rate: str
    placement: str
    bytes: tuple[int, ...]
    sides: tuple[str, ...]
    repeats: int
    in_a_row: int = 1

    @property
    def name(self) -> str:
        sizes = ",".join(map(str, self.bytes))
        return f"{self.part} {self.rate} {self.placement} {sizes} {','.join(self.sides)}"


@dataclass(frozen=True)
class Row:
    """One allreduce.

    Attributes:
        cell: The job's name; what is there already is not measured again.
        seconds: Until the last rank had its result.
        cpu: Seconds of CPU time of all ranks.
        others: Seconds of CPU time of everybody else, the kernel's network included.
    """

    cell: str
    part: str
    rate: str
    placement: str
    bytes: int
    side: str
    turn: int
    repeat: int
    seconds: float
    cpu: float
    others: float


def cells(
    part: str, rates: list[str], placements: Sequence[Placement], quick: bool
) -> Iterator[Cell]:
    """Yields the jobs of a part. MPI has endpoints in a job, or has not, or it is hvd_ft's."""
    if part == "placements":
        for rate, sides, where in product(rates, (TESTED, ("threads",), FT), placements):
            yield Cell(part, rate, where.text, (4_000_000, 8_000_000), sides, 1 if quick else 3)
    elif part == "links":
        for rate in rates:
            # A repeat at 200 Mbit/s takes 20 seconds.
            repeats = 1 if quick or rate == "200mbit" else 3
            for placement in ("4-2-2", "4-3-1"):
                for sides in (SPLIT, UNSPLIT, FT):
                    yield Cell(part, rate, placement, (64_000_000,), sides, repeats)
            # What a hierarchical allreduce leaves to the links: a ring of the nodes.
            yield Cell(part, rate, "1-1-1", (64_000_000,), ("endpoints",), repeats)
    elif part == "sizes":
        for rate in rates:
            # 32 of 4 MiB take MPI half a minute at 200 Mbit/s.
            sizes = tuple(64 << 10 << (2 * i) for i in range(2 if rate == "200mbit" else 4))
            for sides in (PIPELINED, ("mpi",), CORE, FT, STOCK):
                yield Cell(part, rate, "4-2-2", sizes, sides, 3 if quick else 9, IN_A_ROW)
    else:
        sizes = (4 << 20, 16 << 20, 64 << 20)
        for sides in (PIPELINED, UNSPLIT):
            yield Cell(part, "memory", "4", sizes, sides, 3 if quick else 9, LARGE_IN_A_ROW)


@contextmanager
def cluster(rate: str, nodes: int) -> Iterator[list[str]]:
    """Starts a cluster of so many nodes; yields the words before mpirun on it."""
    with cluster_up("locality", nodes, None if rate == "none" else rate) as name:
        yield inside(name)


def job(cell: Cell, turn: int, before: list[str], hosts: list[str], limit: float) -> list[Row]:
    """Runs one job; `before` is put before mpirun."""
    placement = parse(cell.placement)
    placed = placement.hosts(hosts or [f"n{node}" for node in range(placement.size)])
    size = str(sum(host.slots for host in placed))
    measured = ["--bytes", ",".join(map(str, cell.bytes)), "--repeats", str(cell.repeats)]
    measured += ["--in-a-row", str(cell.in_a_row)]
    with tempfile.NamedTemporaryFile("w", dir=ROOT / "out") as machines:
        machines.write(machine_file(placed))
        machines.flush()
        if cell.sides in (FT, CORE):
            start = [*HVDFT, "run", "--no-live", "-np", size]
            start += ["-H", host_list(placed)]
        else:
            where = [] if cell.part == "node" else ["-machinefile", machines.name]
            start = ["mpirun", "-n", size, *where]
        if cell.sides == CORE:
            module = ["experiments.locality.core", "--side", *cell.sides]
        elif cell.sides in (FT, STOCK):
            module = ["experiments.locality.hierarchical", "--side", *cell.sides]
        else:
            module = ["experiments.locality.times", "--sides", ",".join(cell.sides)]
        command = [*before, *start, sys.executable, "-m", *module, *measured]
        with (ROOT / "out" / "locality.log").open("a") as log:
            ended = run_to_end(
                command, limit, env=environment(cell), stdout=subprocess.PIPE, stderr=log, text=True
            )
    if ended.returncode:
        raise HvdFtError(f"{cell.name} failed; its output is in {ROOT / 'out' / 'locality.log'}")
    lines = json_lines(ended.stdout)
    if any(line.pop("wrong") for line in lines):
        raise HvdFtError(f"{cell.name} has wrong sums")
    where_from = (cell.name, cell.part, cell.rate, cell.placement)
    return [Row(*where_from, turn=turn, **line) for line in lines]


def environment(cell: Cell) -> dict[str, str]:
    """Returns the environment of mpirun: no polling, so that nodes on one machine share CPUs."""
    env = {**os.environ, "I_MPI_THREAD_YIELD": "3", "I_MPI_ROOT": sys.prefix, "I_MPI_PIN": "0"}
    env["PATH"] = f"{sys.prefix}/bin:{env['PATH']}"
    if cell.sides == STOCK:
        env |= {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "mpi"}
        env |= {"FI_PROVIDER": "tcp", "LD_LIBRARY_PATH": f"{sys.prefix}/lib"}
    return env | ({"I_MPI_FABRICS": "shm"} if cell.part == "node" else {})


def read_csv(path: Path) -> list[Row]:
    """Returns what was measured before."""
    if not path.exists():
        return []
    kinds = {field.name: field.type for field in fields(Row)}
    with path.open(newline="") as file:
        return [
            Row(**{name: kinds[name](value) for name, value in line.items()})  # type: ignore
            for line in csv.DictReader(file)
        ]


def write_csv(path: Path, rows: list[Row]) -> None:
    """Writes all rows; the file is always whole."""
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)])
        writer.writeheader()
        for row in rows:
            cells_ = asdict(row).items()
            writer.writerow({k: round(v, 6) if isinstance(v, float) else v for k, v in cells_})
    unfinished.replace(path)


def measure(options: argparse.Namespace, rows: list[Row], path: Path) -> None:
    """Measures what is not there yet, turn by turn, and writes each job down when it is done."""
    hosts = options.hosts.read_text().split() if options.hosts else []
    hosts = [host.partition(":")[0] for host in hosts]
    rates = ["as is"] if hosts else (options.rates or RATES[options.part]).split(",")
    for rate in ["memory"] if options.part == "node" else rates:
        wanted = [
            (turn, cell)
            for turn in range(1 if options.quick else options.turns)
            # Who goes first changes, so that no side has the warmer machine.
            for cell in list(cells(options.part, [rate], options.placements, options.quick))[
                :: 1 if turn % 2 == 0 else -1
            ]
        ]
        done = {(row.turn, row.cell) for row in rows}
        wanted = [(turn, cell) for turn, cell in wanted if (turn, cell.name) not in done]
        if not wanted:
            continue
        nodes = max(parse(cell.placement).size for _, cell in wanted)
        with nothing() if hosts or options.part == "node" else cluster(rate, nodes) as before:
            for turn, cell in wanted:
                rows += job(cell, turn, before, hosts, options.limit)
                write_csv(path, rows)
                print(f"{turn} {cell.name}", flush=True)


@contextmanager
def nothing() -> Iterator[list[str]]:
    """In place of a cluster: mpirun as it is."""
    yield []


def placements(text: str) -> tuple[Placement, ...]:
    """Reads the option `--placements`."""
    try:
        return parse_list(text)
    except HvdFtError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def main() -> int:
    """Measures; writes results.csv and plot.png, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=list(RATES), default="links")
    parser.add_argument("--rates", help="a list; none: unlimited")
    parser.add_argument(
        "--placements", type=placements, default=PLACEMENTS, help="a list, of the part placements"
    )
    parser.add_argument("--turns", type=count, default=2, help="how often each job is run")
    parser.add_argument("--quick", action="store_true", help="one turn of one repeat")
    parser.add_argument("--hosts", type=Path, help="a file with the hosts of a real cluster")
    parser.add_argument("--limit", type=count, default=150, help="seconds, of one job")
    add_output(parser, HERE)  # what is there already is not measured again
    options = parser.parse_args()
    (ROOT / "out").mkdir(exist_ok=True)
    path = options.output / "results.csv"
    rows = read_csv(path)
    try:
        measure(options, rows, path)
    finally:
        if rows:
            plot(rows).savefig(options.output / "plot.png", dpi=150)
            plot_placements(rows).savefig(options.output / "placements.png", dpi=150)
            plot_unlimited(rows).savefig(options.output / "unlimited.png", dpi=150)
            print(table(rows))
            print(placements_table(rows))
    print("\n".join(f"{name}: {value}" for name, value in facts().items()))
    return 0


if __name__ == "__main__":
    end_with(main)
