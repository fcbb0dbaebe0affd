"""The worker of `hvdft tune`'s jobs: it times sums of arrays whenever rank 0 gets a request.

Rank 0 has the connection to hvdft tune; it passes each request to the other ranks by a sum.
"""

import argparse
import os
import socket
import time
from collections.abc import Iterator

import numpy as np

from hvd_ft.native.sums import Sums
from hvd_ft.system.channel import Channel

IN_A_ROW_BYTES, MOST_IN_A_ROW = 4 << 20, 16
_END = -1.0
_LOW = 1 << 20  # a number of bytes travels in two floats, which are exact below 2 ** 24


def in_a_row(size: int) -> int:
    """Returns how many allreduces of a size are timed together."""
    return min(max(IN_A_ROW_BYTES // size, 1), MOST_IN_A_ROW)


def measure(sums: Sums, size: int) -> float:
    """Times an allreduce of a number of bytes; collective.

    Returns:
        Seconds of one allreduce, on the rank that took longest.

    Raises:
        SystemExit: A sum is wrong.
    """
    array = np.full(max(size // 4, 1), sums.rank + 1, np.float32)
    sums.sum(array)  # to warm up
    if (array != sums.size * (sums.size + 1) / 2).any():
        raise SystemExit(f"the sum of {size} bytes is wrong")
    array.fill(0)
    count = in_a_row(size)
    sums.of_each(0)
    begin = time.perf_counter()
    for _ in range(count):
        sums.sum(array)
    slowest = float(sums.of_each(time.perf_counter() - begin).max())
    sums.cut()
    return slowest / count


def tell_size(sums: Sums, size: int | None) -> int | None:
    """Passes rank 0's next number of bytes to all ranks; None: there is no more. Collective."""
    word = np.zeros(2, np.float32)
    if sums.rank == 0:
        word[:] = (_END, 0) if size is None else divmod(size, _LOW)
    sums.sum(word)
    return None if word[0] == _END else int(word[0]) * _LOW + int(word[1])


def lead(sums: Sums, path: str) -> None:
    """Serves the requests of hvdft tune; on rank 0."""
    end = socket.socket(socket.AF_UNIX)
    end.connect(path)
    channel = Channel(end)
    channel.send({"cpus": cpus_of_each(sums)})
    for sizes in _requests(channel):
        seconds = []
        for size in sizes:
            tell_size(sums, size)
            seconds.append(measure(sums, size))
        channel.send({"seconds": seconds})
    tell_size(sums, None)


def _requests(channel: Channel) -> Iterator[list[int]]:
    while (messages := channel.receive()) is not None:
        for message in messages:
            if message["sizes"] is None:
                return
            yield message["sizes"]


def cpus_of_each(sums: Sums) -> list[int]:
    """Returns the number of CPUs of each rank's host; collective."""
    return [int(count) for count in sums.of_each(os.cpu_count() or 1)]


def follow(sums: Sums) -> None:
    """Takes part in rank 0's measurements; on the other ranks."""
    cpus_of_each(sums)
    while (size := tell_size(sums, 0)) is not None:
        measure(sums, size)


def main() -> None:
    """Measures until hvdft tune has no more requests, or has ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("socket", help="of hvdft tune, on rank 0's host")
    options = parser.parse_args()
    sums = Sums()
    if sums.rank == 0:
        lead(sums, options.socket)
    else:
        follow(sums)
    sums.leave()


if __name__ == "__main__":
    main()
