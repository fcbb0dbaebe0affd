"""What every rank of the locality experiment does in a job of hvdft run without TensorFlow.

Times the allreduce below `hvd.allreduce`, negotiation and log included, of arrays as times.py has
them. Rank 0 prints the lines that times.py prints.
"""

import argparse
import json

import numpy as np

from experiments.locality.times import job_seconds, share, timed, wanted_result
from hvd_ft.native.sums import Sums

WARM_UPS = 2


def measure(worker: Sums, pattern: np.ndarray, in_a_row: int) -> dict[str, float]:
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
    wanted = wanted_result(pattern, worker.size, in_a_row)
    wrong = worker.of_each(float(not np.array_equal(array, wanted))).sum()
    return share(in_a_row, *times) | {"wrong": int(wrong)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", required=True, help="what it is called")
    parser.add_argument("--bytes", required=True, help="a list")
    parser.add_argument("--repeats", type=int, required=True)
    parser.add_argument("--in-a-row", type=int, default=1, help="allreduces of a repeat")
    options = parser.parse_args()
    worker = Sums()
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
