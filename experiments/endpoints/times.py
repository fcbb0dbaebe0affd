"""What every rank of the endpoints experiment does: time rings, one side after the other.

Started by run.py through mpirun. Rank 0 prints a JSON line for each repeat of each side.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

from hvd_ft import ring

WARM_UP = 2  # rounds: TCP's windows grow, connections are made


def make(comm: Any, side: str) -> ring.Ring:
    """Makes a side's ring.

    Args:
        comm: of mpi4py.
        side: such as `4 rings`, `2 rings both ways`, `1 ring 4 MiB segments`, `1 ring 2 endpoints`,
            `1 ring one array`, which reduces as many bytes in one array.
    """
    words = side.split()
    segment = int(words[2]) << 20 if "segments" in words else ring.SEGMENT_BYTES
    endpoints = 2 if "endpoints" in words else 1
    return ring.Ring(comm, endpoints, segment, rings=int(words[0]), both_ways="ways" in words)


def measure(comm: Any, reduce: Callable[[list[np.ndarray]], object], sizes: list[int]) -> float:
    """Times an allreduce of arrays, at once, from a barrier until the last rank has the result."""
    from mpi4py import MPI

    patterns = [np.resize(np.arange(7, dtype=np.float32), size // 4) for size in sizes]
    arrays = [pattern + np.float32(comm.rank) for pattern in patterns]
    comm.Barrier()
    time.sleep(0.02)  # what the barrier left on its way is gone
    comm.Barrier()
    begin = time.perf_counter()
    reduce(arrays)
    seconds = comm.allreduce(time.perf_counter() - begin, MPI.MAX)
    total = np.float32(comm.size * (comm.size - 1) / 2)
    for pattern, array in zip(patterns, arrays, strict=True):
        assert np.array_equal(array, pattern * np.float32(comm.size) + total), "a wrong sum"
    return float(seconds)


def main() -> None:
    """Measures; prints rank 0's lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sides", required=True, help="a list, with commas")
    parser.add_argument("--bytes", type=int, required=True, help="of each array")
    parser.add_argument("--arrays", type=int, default=1, help="at once")
    parser.add_argument("--repeats", type=int, required=True)
    options = parser.parse_args()
    sides = options.sides.split(",")
    most = max(int(side.split()[0]) for side in sides)
    ring.prepare(endpoints=1, rings=max(most, 4))  # at least those of a ring with two endpoints
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    with ExitStack() as stack:
        rings = {side: stack.enter_context(make(comm, side)) for side in sides}
        for side, made in rings.items():
            assert made.rings == int(side.split()[0]), made.why
        for repeat in range(-WARM_UP, options.repeats):
            for side in sides if repeat % 2 else sides[::-1]:
                sizes = [options.bytes] * options.arrays
                if "one" in side.split():
                    sizes = [sum(sizes)]
                seconds = measure(comm, rings[side].allreduce_all, sizes)
                if comm.rank == 0 and repeat >= 0:
                    print(json.dumps({"side": side, "repeat": repeat, "seconds": seconds}))
                    sys.stdout.flush()


if __name__ == "__main__":
    main()
