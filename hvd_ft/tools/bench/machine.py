"""Facts about the machine on which the numbers were measured."""

import os
import platform
import threading
import time
from pathlib import Path

import numpy as np

_COPY_BYTES = 256 << 20  # far more than fits into caches
_REPEATS = 5


def facts() -> dict[str, str]:
    """Returns the machine's facts by name; takes about 2 seconds for the memory bandwidth."""
    cores = sorted(os.sched_getaffinity(0))
    return {
        "CPU": f"{_cpu_model()}, {len(cores)} cores",
        "caches": _caches(cores[0]) or "unknown",
        "kernel": f"{platform.system()} {platform.release()}",
        "memory bandwidth": _bandwidth(len(cores)),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _caches(core: int) -> str:
    found = []
    for cache in sorted(Path(f"/sys/devices/system/cpu/cpu{core}/cache").glob("index*")):
        level, kind, size = (
            (cache / name).read_text().strip() for name in ("level", "type", "size")
        )
        letter = {"Data": "d", "Instruction": "i"}.get(kind, "")
        found.append(f"L{level}{letter} {size}")
    return ", ".join(found)


def _bandwidth(cores: int) -> str:
    count = _COPY_BYTES // 8
    source, target = np.ones(count), np.ones(count)
    one = _copy_gbs([(source, target)])
    all_cores = _copy_gbs(
        list(zip(np.array_split(source, cores), np.array_split(target, cores), strict=True))
    )
    fresh = _fresh_gbs(count)
    return (
        f"copy of {_COPY_BYTES >> 20} MiB, bytes read and written: {one:.1f} GB/s on one core, "
        f"{all_cores:.1f} GB/s on {cores}; writing fresh memory, with its page faults: "
        f"{fresh:.1f} GB/s"
    )


def _copy_gbs(pairs: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """Copies all pairs at once, each in its own thread; returns the best of several repeats."""
    best = float("inf")
    for _ in range(_REPEATS):
        threads = [
            threading.Thread(target=np.copyto, args=(target, source)) for source, target in pairs
        ]
        begin = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        best = min(best, time.perf_counter() - begin)
    return 2 * sum(source.nbytes for source, _ in pairs) / best / 1e9


def _fresh_gbs(count: int) -> float:
    """Writes newly allocated memory; returns the best of several repeats."""
    best = float("inf")
    for _ in range(_REPEATS):
        begin = time.perf_counter()
        np.empty(count).fill(1.0)
        best = min(best, time.perf_counter() - begin)
    return 8 * count / best / 1e9
