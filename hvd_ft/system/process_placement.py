"""Where a process is: the CPUs of its threads, the NUMA nodes of its memory. Read from /proc.

Pure but for the files that `read` reads and the folders that `names` lists.
"""

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hvd_ft.system.cgroup import read_text
from hvd_ft.system.topology import Read, numbers

_LAST_CPU = 36  # of the fields of /proc/<pid>/stat behind the name: `processor`
_FILE = "file="


@dataclass(frozen=True)
class Thread:
    """A thread.

    Attributes:
        name: the name that it has given itself, otherwise the program's.
        cpus: numbers of the CPUs that it may use.
        last_cpu: where it ran last.
    """

    name: str
    cpus: frozenset[int]
    last_cpu: int


@dataclass(frozen=True)
class Mapped:
    """Memory that a process has mapped and used.

    Attributes:
        file: its path; "" for memory of the process's own.
        policy: Linux's word for it, such as `default`, `prefer:1` or `interleave:0-1`.
        bytes: on each NUMA node.
    """

    file: str
    policy: str
    bytes: Mapping[int, int]


def _names(folder: str) -> Sequence[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return ()


def threads_of(
    pid: int, read: Read = read_text, names: Callable[[str], Sequence[str]] = _names
) -> list[Thread]:
    """Returns the threads of a process, the first one first; none if it has ended.

    Args:
        pid: of the process.
        read: returns the contents of a file, or None.
        names: returns the names in a folder.
    """
    found = []
    for thread in sorted(map(int, names(f"/proc/{pid}/task"))):
        folder = f"/proc/{pid}/task/{thread}"
        name, _, rest = (read(f"{folder}/stat") or "").partition("(")[2].rpartition(")")
        with contextlib.suppress(IndexError, ValueError):  # it has ended
            allowed = _field(read(f"{folder}/status") or "", "Cpus_allowed_list")
            found.append(Thread(name, frozenset(numbers(allowed)), int(rest.split()[_LAST_CPU])))
    return found


def memory_of(pid: int, read: Read = read_text) -> list[Mapped]:
    """Returns the memory that a process has mapped; none if it has ended or may not be seen.

    Args:
        pid: of the process.
        read: returns the contents of a file, or None.
    """
    return list(map(_mapped, (read(f"/proc/{pid}/numa_maps") or "").splitlines()))


def _mapped(line: str) -> Mapped:
    """Reads a line such as `7f00 prefer:1 file=/dev/shm/a dirty=2 N1=2 kernelpagesize_kB=4`."""
    _, policy, *words = line.split()
    # Linux writes a blank in a name, or in `prefer (many)`, as several words or as \040.
    size = next((int(word[18:]) for word in words if word.startswith("kernelpagesize_kB=")), 4)
    pages: Counter[int] = Counter()
    for word in words:
        node, _, count = word.partition("=")
        if node[:1] == "N" and node[1:].isdecimal() and count.isdecimal():
            pages[int(node[1:])] += int(count) * size << 10
    file = next((word[len(_FILE) :] for word in words if word.startswith(_FILE)), "")
    return Mapped(file.replace("\\040", " "), policy, pages)


def policy_of(memory: Iterable[Mapped]) -> str:
    """Returns the policy of most of a process's own memory."""
    bytes_by: Counter[str] = Counter()
    for part in memory:
        if not part.file:
            bytes_by[part.policy] += sum(part.bytes.values())
    return bytes_by.most_common(1)[0][0] if bytes_by else "unknown"


def total(parts: Iterable[Mapped]) -> dict[int, int]:
    """Returns the bytes on each NUMA node of several parts."""
    sums: Counter[int] = Counter()
    for part in parts:
        sums.update(part.bytes)
    return dict(sorted(sums.items()))


def _field(status: str, wanted: str) -> str:
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name == wanted:
            return value
    return ""
