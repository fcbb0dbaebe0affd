"""Measures what it costs to copy into memory of a file that is fresh, used, or given back.

`python -m experiments.state_memory.fresh_memory [DIRECTORY ...]`, of filesystems as the arena's.
"""

import argparse
import ctypes
import mmap
import os
import statistics
import tempfile
import time

import numpy as np

from experiments.common import count

_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # of fallocate(2)
_POPULATE_WRITE = 23  # of madvise(2)
_LIBC = ctypes.CDLL(None, use_errno=True)


def measure(directory: str, size: int, *, populate: bool) -> dict[str, float]:
    """Copies into a new file twice, then gives its memory back.

    Args:
        directory: in which the file is made.
        size: of the file, in bytes.
        populate: whether the mapping is filled at once before the copy.

    Returns:
        Milliseconds for memory (from the file's growth to the end of the first copy), for the
        second copy, and for giving the memory back.
    """
    source = np.ones(size, np.uint8)
    with tempfile.TemporaryFile(dir=directory) as file:
        begin = time.perf_counter()
        os.posix_fallocate(file.fileno(), 0, size)
        mapping = mmap.mmap(file.fileno(), size)
        room = np.frombuffer(mapping, np.uint8)
        if populate:
            _LIBC.madvise(ctypes.c_void_p(room.ctypes.data), ctypes.c_size_t(size), _POPULATE_WRITE)
        np.copyto(room, source)
        first = time.perf_counter()
        np.copyto(room, source)
        second = time.perf_counter()
        mode = _KEEP_SIZE | _PUNCH_HOLE
        _LIBC.fallocate(file.fileno(), mode, ctypes.c_long(0), ctypes.c_long(size))
        end = time.perf_counter()
    times = {"fresh": first - begin, "used": second - first, "given back": end - second}
    return {name: 1e3 * seconds for name, seconds in times.items()}


def main() -> None:
    """Prints medians, a line for each directory and way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directories", nargs="*", default=["/dev/shm"])
    parser.add_argument("--mib", type=count, default=75)
    parser.add_argument("--repeats", type=count, default=9)
    options = parser.parse_args()
    for directory in options.directories:
        for populate in (False, True):
            runs = [
                measure(directory, options.mib << 20, populate=populate)
                for _ in range(options.repeats)
            ]
            medians = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
            texts = ", ".join(f"{name} {value:.1f} ms" for name, value in medians.items())
            print(f"{directory}{', filled at once' if populate else ''}: {texts}")


if __name__ == "__main__":
    main()
