"""What each of the two processes of `hvdft probe` does; started by probe.py through mpiexec.

The first one prints JSON lines: a line about MPI, then the measurement of each size.
"""

import argparse
import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from typing import Any

import numpy as np

from hvd_ft.mpi import capabilities
from hvd_ft.native import mpi
from hvd_ft.system.say import answer

MOST_WINDOWS = 1 << 20
PILOT = 0.1  # of the time of a measurement: windows that take less say nothing


def windows_for(seconds: float, nanoseconds_of: Callable[[int], int]) -> int:
    """Returns the number of windows that take about the given time.

    The first windows use new pages and connections, so their time says nothing about later ones.
    The number is doubled until it takes a large enough part of the given time.

    Args:
        seconds: The duration of a measurement.
        nanoseconds_of: Exchanges a number of windows; returns the time they have taken.
    """
    windows = 1
    while (taken := nanoseconds_of(windows)) < PILOT * seconds * 1e9 and windows < MOST_WINDOWS:
        windows *= 2
    return min(max(round(windows * seconds * 1e9 / max(taken, 1)), 1), MOST_WINDOWS)


def measure(comm: Any, probe: mpi.Probe, size: int, seconds: float) -> dict[str, Any]:
    """Measures one size for about the given time; returns the facts of its line. Collective."""
    from mpi4py import MPI

    def slower(own_ns: int) -> int:
        both = np.array([own_ns], np.int64)
        comm.Allreduce(MPI.IN_PLACE, both, MPI.MAX)
        return int(both[0])

    windows = windows_for(seconds, lambda windows: slower(probe.run(size, windows).ns))
    found = probe.run(size, windows)
    wrong = np.array([found.wrong], np.int64)
    comm.Allreduce(MPI.IN_PLACE, wrong)
    both_ways = 2 * found.messages
    return {
        "bytes": size,
        "window": found.window,
        "messages": both_ways,
        "messages_per_second": both_ways / (slower(found.ns) / 1e9),
        "wrong": int(wrong[0]),
    }


def main() -> None:
    """Measures all sizes, with each number of threads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", required=True, help="bytes, a list")
    parser.add_argument("--threads", required=True, help="a list")
    parser.add_argument("--seconds", type=float, required=True, help="of each measurement")
    parser.add_argument("--split", action="store_true", help="an endpoint for each thread")
    options = parser.parse_args()
    sizes, threads = (
        [int(n) for n in text.split(",")] for text in (options.sizes, options.threads)
    )
    import mpi4py

    mpi4py.rc.thread_level = "multiple"
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    facts = mpi.facts()
    why = capabilities.why_fewer_endpoints(facts, 1 + max(threads) if options.split else 1)

    def tell(line: dict[str, Any]) -> None:
        if comm.rank == 0:
            answer(json.dumps(line))

    tell({**asdict(facts), "providers": capabilities.providers(), "why": why})
    if why:
        return
    for count in threads:
        with closing(mpi.Probe(MPI._handleof(comm), count, split=options.split)) as probe:
            for size in sizes:
                tell({"threads": count, **measure(comm, probe, size, options.seconds)})


if __name__ == "__main__":
    main()
