"""Measures where several rings, each with endpoints of its own, are faster than one.

README.md in this folder tells what is measured; `python -m experiments.endpoints.run --help` the
flags.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.common import (
    HVDFT,
    ROOT,
    add_output,
    cluster_up,
    count,
    end_with,
    inside,
    json_lines,
    output_of,
    write_csv,
)
from experiments.endpoints.show import plot, table
from experiments.endpoints.wire import DEVICE
from hvd_ft.errors import HvdFtError
from hvd_ft.tools.bench.machine import facts
from hvd_ft.tools.cluster.cluster_dir import ClusterDir
from hvd_ft.tools.cluster.exec_server import process_behind

HERE = Path(__file__).resolve().parent
RINGS = ("1 ring", "2 rings", "4 rings", "8 rings")
WAYS = ("1 ring", "2 rings", "2 rings both ways")
CONNECTIONS = ("1 connection", "2 connections", "4 connections")  # of a job of hvdft's
TURNS = 2  # of such jobs
Row = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """What one job measures: its sides take turns.

    Attributes:
        name: in the table.
        hosts: with one rank each; 1: two ranks on one host, over shared memory.
        wire: flags of wire.py; None: the cluster's own links, unlimited.
        bytes: of each array.
        arrays: reduced at once.
        sides: the first one is what the others are compared with.
        send_buffer: bytes that TCP may have under way on a connection; None: what the kernel allows
            by default, 4 MiB.
    """

    name: str
    hosts: int
    wire: tuple[str, ...] | None
    bytes: int
    arrays: int
    sides: tuple[str, ...]
    send_buffer: int | None = None


MIB = 1 << 20
CELLS = (
    Cell("a connection may have a quarter of the link", 2,
         ("--rate", "160e6", "--flow-rate", "40e6", "--delay", "0.0002"), 4 * MIB, 1, RINGS),
    Cell("the same, in jobs of hvdft", 2,
         ("--rate", "160e6", "--flow-rate", "40e6", "--delay", "0.0002"), 4 * MIB, 1, CONNECTIONS),
    Cell("50 ms, TCP's buffers are the limit", 2,
         ("--rate", "400e6", "--delay", "0.05"), 4 * MIB, 1,
         (*RINGS, "1 ring 4 MiB segments"), send_buffer=MIB // 2),
    Cell("32 small arrays, 5 ms", 2, ("--rate", "80e6", "--delay", "0.005"), 4 << 10, 32,
         (*RINGS, "1 ring one array")),
    Cell("a cable for each pair of 3 hosts", 3,
         ("--rate", "40e6", "--cables", "--delay", "0.0002"), 3 * MIB, 1, WAYS),
    Cell("a switch between 3 hosts", 3, ("--rate", "40e6", "--delay", "0.0002"), 3 * MIB, 1, WAYS),
    Cell("the link is the limit", 2, ("--rate", "80e6", "--delay", "0.0002"), 8 * MIB, 1, RINGS),
    Cell("CPUs are the limit", 2, None, 64 * MIB, 1, (*RINGS[:3], "1 ring 2 endpoints")),
    Cell("one host, shared memory", 1, None, 64 * MIB, 1, (*RINGS[:3], "1 ring 2 endpoints")),
)  # fmt: skip


@contextmanager
def wire(cluster: str, hosts: int, flags: tuple[str, ...]) -> Iterator[None]:
    """A wire between a cluster's hosts.

    Args:
        cluster: its name.
        hosts: how many.
        flags: of wire.py.

    Raises:
        HvdFtError: It cannot be made.
    """
    directory = ClusterDir(cluster)
    pids = [str(process_behind(directory.exec_socket(f"n{host}"))) for host in range(hosts)]
    command = [sys.executable, "-m", "experiments.endpoints.wire", *pids, *flags]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin and process.stdout
        if process.stdout.readline() != "ready\n":
            raise HvdFtError("the wire between the hosts cannot be made, see above")
        yield
        process.stdin.close()  # which ends it


def measure(cell: Cell, repeats: int) -> list[Row]:
    """Measures a cell; returns a row for each repeat of each side."""
    if cell.hosts == 1:
        os.environ["PATH"] = f"{sys.prefix}/bin:{os.environ['PATH']}"
        return rings(cell, ["mpirun", "-np", "2", "-genv", "I_MPI_FABRICS", "shm"], repeats)
    with (
        cluster_up("endpoints", cell.hosts, "100gbit") as name,
        tempfile.NamedTemporaryFile("w", dir=ROOT / "out") as machines,
    ):
        for host in range(cell.hosts if cell.send_buffer else 0):
            limit = f"echo 4096 16384 {cell.send_buffer} >/proc/sys/net/ipv4/tcp_wmem"
            output_of([*HVDFT, "cluster", "exec", "--name", name, f"n{host}", "sh", "-c", limit])
        before = inside(name)
        machines.write("".join(f"n{host}:1\n" for host in range(cell.hosts)))
        machines.flush()
        mpirun = ["mpirun", "-np", str(cell.hosts), "-machinefile", machines.name]
        if cell.wire is None:
            return rings(cell, [*before, *mpirun], repeats)
        with wire(name, cell.hosts, cell.wire):
            if cell.sides == CONNECTIONS:
                return jobs(cell, before, repeats)
            return rings(cell, [*before, *mpirun, "-genv", "FI_TCP_IFACE", DEVICE], repeats)


def rings(cell: Cell, launch: Sequence[str], repeats: int) -> list[Row]:
    """Runs a cell's job of mpirun, in which its sides take turns."""
    times = ["-m", "experiments.endpoints.times", "--sides", ",".join(cell.sides)]
    times += ["--bytes", str(cell.bytes), "--arrays", str(cell.arrays), "--repeats", str(repeats)]
    output = output_of([*launch, sys.executable, *times])
    return [{"cell": cell.name, **row} for row in json_lines(output)]


def jobs(cell: Cell, before: Sequence[str], repeats: int) -> list[Row]:
    """Runs jobs of hvdft, one for each side in turn, until each has had its repeats."""
    hosts = ",".join(f"n{host}:1" for host in range(cell.hosts))
    job = [*HVDFT, "run", "--no-live", "-np", str(cell.hosts), "-H", hosts, sys.executable]
    core = ["-m", "experiments.locality.core", "--bytes", str(cell.bytes)]
    found: list[Row] = []
    for turn in range(TURNS):
        for side in cell.sides if turn % 2 else cell.sides[::-1]:
            env = ["env", f"FI_TCP_IFACE={DEVICE}", "HOROVOD_FT_ENDPOINTS=3"]
            env += [f"HOROVOD_FT_CONNECTIONS={side.split()[0]}"]
            each = -(-repeats // TURNS)
            options = ["--side", side, "--repeats", str(each)]
            for row in json_lines(output_of([*before, *env, *job, *core, *options])):
                repeat = turn * each + int(row["repeat"])
                found.append(
                    {"cell": cell.name, "side": side, "repeat": repeat, "seconds": row["seconds"]}
                )
    return found


def main() -> int:
    """Measures; writes results.csv and plot.png, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=count, default=9, help="of each side of each cell")
    parser.add_argument("--cells", default="", help="only those whose names contain this")
    add_output(parser, HERE)
    options = parser.parse_args()
    (ROOT / "out").mkdir(exist_ok=True)
    os.environ |= {"I_MPI_ROOT": sys.prefix, "I_MPI_PIN": "0", "I_MPI_THREAD_YIELD": "3"}
    found: list[Row] = []
    for cell in CELLS:
        if options.cells in cell.name:
            found += measure(cell, options.repeats)
            write_csv(options.output / "results.csv", found)
            print(cell.name, flush=True)
    order = {cell.name: cell.sides for cell in CELLS}
    plot(found, order).savefig(options.output / "plot.png", dpi=150)
    print(table(found, order))
    print("\n".join(f"{name}: {value}" for name, value in facts().items()))
    return 0


if __name__ == "__main__":
    end_with(main)
