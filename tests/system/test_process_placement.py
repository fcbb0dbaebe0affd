"""Where processes are is read as Linux says it."""

import os
import threading
from collections.abc import Callable

from hvd_ft.system.process_placement import (
    Mapped,
    Thread,
    memory_of,
    policy_of,
    threads_of,
    total,
)

MAPS = """\
55d0 default file=/usr/bin/python3.11 mapped=6 N0=6 kernelpagesize_kB=4
55e0 bind:0-1 heap anon=12 dirty=12 N0=2 N1=10 kernelpagesize_kB=4
7f00 interleave:0-1 file=/dev/shm/a\\040job/node.arena dirty=3 N0=2 N1=1 kernelpagesize_kB=4
7f10 prefer:1 file=/dev/shm/a\\040job/rank-1.arena huge anon=1 N1=1 kernelpagesize_kB=2048
7f20 prefer (many):0-1 anon=1 N1=1 kernelpagesize_kB=4
7f30 default
"""


def reads(path: str, text: str) -> Callable[[str], str | None]:
    return {path: text}.get


def test_memory() -> None:
    parts = memory_of(7, reads("/proc/7/numa_maps", MAPS))
    assert parts[0] == Mapped("/usr/bin/python3.11", "default", {0: 6 << 12})
    assert parts[1] == Mapped("", "bind:0-1", {0: 2 << 12, 1: 10 << 12})
    assert parts[2] == Mapped("/dev/shm/a job/node.arena", "interleave:0-1", {0: 2 << 12, 1: 4096})
    assert parts[3].bytes == {1: 2 << 20}
    assert (parts[4].policy, parts[4].bytes) == ("prefer", {1: 4096})
    assert parts[5] == Mapped("", "default", {})
    assert policy_of(parts) == "bind:0-1"
    assert total(parts[:3]) == {0: 10 << 12, 1: 11 << 12}
    assert memory_of(8, reads("/proc/7/numa_maps", MAPS)) == []
    assert policy_of([]) == "unknown"


def test_threads() -> None:
    files = {
        "/proc/7/task/7/stat": f"7 (py) thon) S {' '.join(str(n) for n in range(4, 53))}",
        "/proc/7/task/7/status": "Name:\tpy\nCpus_allowed:\tf\nCpus_allowed_list:\t0-2,8\n",
        "/proc/7/task/11/stat": f"11 (hvdft-send) R {' '.join(['3'] * 49)}",
        "/proc/7/task/11/status": "Cpus_allowed_list:\t3\n",
        "/proc/7/task/12/stat": "12 (torn) R 1",
    }
    folders = {"/proc/7/task": ["12", "11", "7", "13"]}
    assert threads_of(7, files.get, lambda folder: folders.get(folder, ())) == [
        Thread("py) thon", frozenset({0, 1, 2, 8}), 39),
        Thread("hvdft-send", frozenset({3}), 3),
    ]


def test_this_process() -> None:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        found = threads_of(os.getpid())
    finally:
        ended.set()
        thread.join()
    assert len(found) > 1
    assert found[0].cpus == os.sched_getaffinity(0)
    assert all(thread.last_cpu < (os.cpu_count() or 0) for thread in found)
    assert threads_of(0) == []
    if parts := memory_of(os.getpid()):  # the kernel has NUMA
        assert sum(total(parts).values()) > 1 << 20
