"""What every rank of the locality experiment does in a job of hvdft run without TensorFlow.

Times the allreduce below `hvd.allreduce`, negotiation and log included, of arrays as times.py has
them. Rank 0 prints the lines that times.py prints.
"""

import argparse
import ctypes
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from experiments.locality.times import job_seconds, share, timed, wanted_result
from hvd_ft import libraries
from hvd_ft.errors import HvdFtError
from hvd_ft.native import abi

WARM_UPS = 2
SOURCE = Path(__file__).with_name("core_sum.cc")


def compile_sum(library: Path) -> None:
    """Compiles core_sum.cc; what it calls it finds in the process that loads it.

    Raises:
        HvdFtError: It does not compile, or there is no compiler.
    """
    include = SOURCE.parents[2] / "hvd_ft" / "csrc" / "include"
    command = ["g++", "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    try:
        subprocess.run([*command, f"-I{include}", SOURCE, "-o", library], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise HvdFtError(
            f"{SOURCE.name} does not compile: {error}; see above, or install a compiler (Debian: "
            "apt-get install g++)"
        ) from None


class Worker:
    """This rank of the job.

    Attributes:
        rank: Its number.
        ranks: How many there are.
    """

    def __init__(self, library: Path) -> None:
        self._core = abi.library()
        # Where core_sum.cc looks for what it calls.
        ctypes.CDLL(libraries.library_path(), ctypes.RTLD_GLOBAL)
        self._mine = ctypes.CDLL(str(library))
        self._mine.core_sum.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
        self._check(self._mine.core_open())
        self.rank, self.ranks = self._core.hvdft_worker_rank(), self._core.hvdft_worker_size()

    def sum(self, array: np.ndarray) -> None:
        """Sums a float32 array over all ranks, in place."""
        self._check(self._mine.core_sum(array.ctypes.data, array.nbytes))

    def of_each(self, value: float) -> np.ndarray:
        """Returns what each rank has, by rank, as float32."""
        values = np.zeros(self.ranks, np.float32)
        values[self.rank] = value
        self.sum(values)
        return values

    def cut(self) -> None:
        """Publishes a snapshot, as in a training: the log begins anew, in the memory it has."""
        self._check(self._mine.core_cut())

    def leave(self) -> None:
        """Takes part in nothing more."""
        self._core.hvdft_worker_leave()

    def _check(self, code: int) -> None:
        if code < 0:
            sys.exit(f"{code}: {abi.error()}")


def measure(worker: Worker, pattern: np.ndarray, in_a_row: int) -> dict[str, float]:
    """Times allreduces; returns one's share."""
    array = pattern + np.float32(worker.rank)

    def row() -> None:
        for _ in range(in_a_row):
            worker.sum(array)

    times = timed(
        row,
        barrier=lambda: worker.of_each(0),
        used=job_seconds,
        total=lambda value: float(worker.of_each(value).sum()),
        most=lambda value: float(worker.of_each(value).max()),
    )
    wanted = wanted_result(pattern, worker.ranks, in_a_row)
    wrong = worker.of_each(float(not np.array_equal(array, wanted))).sum()
    return share(in_a_row, *times) | {"wrong": int(wrong)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", required=True, help="what it is called")
    parser.add_argument("--bytes", required=True, help="a list")
    parser.add_argument("--repeats", type=int, required=True)
    parser.add_argument("--in-a-row", type=int, default=1, help="allreduces of a repeat")
    parser.add_argument("--library", type=Path, required=True, help="core_sum.cc, compiled")
    options = parser.parse_args()
    worker = Worker(options.library)
    for size in map(int, options.bytes.split(",")):
        pattern = np.resize(np.arange(7, dtype=np.float32), size // 4)
        for repeat in range(-WARM_UPS, options.repeats):
            row = {"side": options.side, "bytes": size, "repeat": repeat}
            row |= measure(worker, pattern, options.in_a_row)
            worker.cut()
            if worker.rank == 0 and repeat >= 0:
                print(json.dumps(row), flush=True)
    worker.leave()


if __name__ == "__main__":
    main()
