"""What every rank of the locality experiment does: time allreduces, one side after the other.

Started by run.py through mpirun. Rank 0 prints a JSON line for each repeat of each side.
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import psutil

from hvd_ft import ring

# Intel MPI accepts two threads on one endpoint only without split threads; its own allreduce also
# runs that way by default.
UNSPLIT = ("threads", "mpi")
ONE_ENDPOINT = ("one endpoint", "by host")
WARM_UP = 1 << 16  # elements
# Looked up once: each look goes through /proc.
PROCESSES = [psutil.Process(), *psutil.Process().parents()[:2]]


def sides(
    comm: Any, names: list[str], segment_bytes: int, stack: ExitStack
) -> dict[str, Callable[[np.ndarray], object]]:
    """Returns for each side what reduces an array in place."""
    from mpi4py import MPI

    found: dict[str, Callable[[np.ndarray], object]] = {}
    for name in names:
        if name == "mpi":
            found[name] = lambda array: comm.Allreduce(MPI.IN_PLACE, array)
            continue
        variant, endpoints = ("endpoints", 1) if name in ONE_ENDPOINT else (name, 2)
        # In the order of ranks, as any flat ring has been; by default a ring orders itself.
        order = "hosts" if name == "by host" else "ranks"
        made = ring.Ring(comm, endpoints, segment_bytes, variant, order=order)
        found[name] = stack.enter_context(made).allreduce
    return found


def cpu_seconds() -> float:
    """Returns the CPU time that this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def job_seconds() -> float:
    """Returns the CPU time that this worker, its shim and its agent have used."""
    return float(sum(sum(process.cpu_times()[:2]) for process in PROCESSES))


def busy_seconds() -> float:
    """Returns the CPU time that all processes of the machine have used, and interrupts."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def wanted_result(pattern: np.ndarray, ranks: int, in_a_row: int) -> np.ndarray:
    """Returns what so many allreduces, each of the one before's result, make of a pattern.

    Args:
        pattern: float32, small whole numbers, to which each rank adds its number.
        ranks: a power of two, or all is done once: so no rounding comes in.
        in_a_row: so many allreduces.
    """
    once = pattern * np.float32(ranks) + np.float32(ranks * (ranks - 1) / 2)
    return np.asarray(once * np.float32(ranks) ** (in_a_row - 1))


def timed(
    run: Callable[[], object],
    *,
    barrier: Callable[[], object],
    used: Callable[[], float],
    total: Callable[[float], float],
    most: Callable[[float], float],
) -> tuple[float, float, float]:
    """Times what all ranks do, from when all are there until the last one is done.

    Args:
        run: what is timed.
        barrier: returns when all ranks have called it.
        used: returns the CPU seconds that are this rank's.
        total: returns the sum of what each rank gives.
        most: returns the largest of what each rank gives.

    Returns:
        Seconds; CPU seconds of all ranks; CPU seconds of everybody.
    """
    barrier()
    time.sleep(0.02)  # what the barrier left on its way is gone
    cpu, busy = used(), busy_seconds()
    barrier()
    begin = time.perf_counter()
    run()
    seconds = time.perf_counter() - begin
    cpu = total(used() - cpu)
    seconds = most(seconds)
    return seconds, cpu, busy_seconds() - busy


def measure(
    comm: Any, pattern: np.ndarray, reduce: Callable[[np.ndarray], object], in_a_row: int
) -> dict[str, Any]:
    """Times allreduces; returns one's share."""
    from mpi4py import MPI

    array = pattern + np.float32(comm.rank)

    def row() -> None:
        for _ in range(in_a_row):
            reduce(array)

    times = timed(
        row,
        barrier=comm.Barrier,
        used=cpu_seconds,
        total=comm.allreduce,
        most=lambda value: comm.allreduce(value, MPI.MAX),
    )
    wanted = wanted_result(pattern, comm.size, in_a_row)
    wrong = comm.allreduce(int(not np.array_equal(array, wanted)))
    return share(in_a_row, *times) | {"wrong": wrong}


def share(in_a_row: int, seconds: float, cpu: float, busy: float) -> dict[str, float]:
    """Returns one allreduce's share of the time, of the ranks' CPU time and of that of others."""
    others = max(busy - cpu, 0.0)
    return {"seconds": seconds / in_a_row, "cpu": cpu / in_a_row, "others": others / in_a_row}


def repeats(options: argparse.Namespace, names: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Yields the number of each repeat and the order of its sides; -1 is to warm up."""
    for repeat in range(-1, options.repeats):
        yield repeat, names if repeat % 2 else names[::-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sides", required=True)
    parser.add_argument("--bytes", required=True, help="a list")
    parser.add_argument("--repeats", type=int, required=True)
    parser.add_argument("--in-a-row", type=int, default=1, help="allreduces of a repeat")
    parser.add_argument("--segment-bytes", type=int, default=ring.SEGMENT_BYTES)
    options = parser.parse_args()
    names = options.sides.split(",")
    ring.prepare(endpoints=1 if set(names) & {*UNSPLIT} else 2)
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    with ExitStack() as stack:
        reduce = sides(comm, names, options.segment_bytes, stack)
        for size in map(int, options.bytes.split(",")):
            pattern = np.resize(np.arange(7, dtype=np.float32), size // 4)
            for repeat, order in repeats(options, names):
                for name in order:
                    # Connections are made on the first use, whatever its size.
                    part = pattern if repeat >= 0 else pattern[:WARM_UP]
                    row = measure(comm, part, reduce[name], options.in_a_row)
                    if comm.rank == 0 and repeat >= 0:
                        print(json.dumps({"side": name, "bytes": size, "repeat": repeat, **row}))
                        sys.stdout.flush()


if __name__ == "__main__":
    main()
