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

# Intel MPI takes two threads on one endpoint only when it does not split threads, and that is how
# its own allreduce runs when nobody asks for endpoints.
UNSPLIT = ("threads", "mpi")
WARM_UP = 1 << 16  # elements


def sides(
    comm: Any, names: list[str], segment_bytes: int, stack: ExitStack
) -> dict[str, Callable[[np.ndarray], object]]:
    """Returns for each side what reduces an array in place."""
    from mpi4py import MPI

    found: dict[str, Callable[[np.ndarray], object]] = {}
    for name in names:
        if name == "mpi":
            found[name] = lambda array: comm.Allreduce(MPI.IN_PLACE, array)
        else:
            made = ring.Ring(comm, variant=name, segment_bytes=segment_bytes)
            found[name] = stack.enter_context(made).allreduce
    return found


def cpu_seconds() -> float:
    """Returns the CPU time that this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def busy_seconds() -> float:
    """Returns the CPU time that all processes of the machine have used, and interrupts."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def measure(
    comm: Any, pattern: np.ndarray, reduce: Callable[[np.ndarray], object]
) -> dict[str, Any]:
    """Times one allreduce, from a barrier until the last rank has its result."""
    from mpi4py import MPI

    array = pattern + np.float32(comm.rank)
    comm.Barrier()
    time.sleep(0.02)  # what the barrier left on its way is gone
    comm.Barrier()
    cpu, busy, begin = cpu_seconds(), busy_seconds(), time.perf_counter()
    reduce(array)
    seconds = time.perf_counter() - begin
    cpu = comm.allreduce(cpu_seconds() - cpu)
    seconds = comm.allreduce(seconds, MPI.MAX)
    busy = busy_seconds() - busy
    wanted = pattern * np.float32(comm.size) + np.float32(comm.size * (comm.size - 1) / 2)
    wrong = comm.allreduce(int(not np.array_equal(array, wanted)))
    return {"seconds": seconds, "cpu": cpu, "others": max(busy - cpu, 0.0), "wrong": wrong}


def repeats(options: argparse.Namespace, names: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Yields the number of each repeat and the order of its sides; -1 is to warm up."""
    for repeat in range(-1, options.repeats):
        yield repeat, names if repeat % 2 else names[::-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sides", required=True)
    parser.add_argument("--bytes", required=True, help="a list")
    parser.add_argument("--repeats", type=int, required=True)
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
                    row = measure(comm, part, reduce[name])
                    if comm.rank == 0 and repeat >= 0:
                        print(json.dumps({"side": name, "bytes": size, "repeat": repeat, **row}))
                        sys.stdout.flush()


if __name__ == "__main__":
    main()
