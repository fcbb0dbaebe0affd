"""Tells whether the kernel's out-of-memory killer has ended a process, and what had run out.

Two witnesses:

- the kernel's log, which names the process; a process in the host's own namespace of process ids
  may be allowed to read it;
- the counter of such kills in the process's control group, of version 2 or 1. It says only that a
  process of the group was killed, so it is read again and again while the process lives, and counts
  for the process that dies right after it has risen.

Pure but for what `read` and `kernel_log` read.
"""

import os
import re
from collections.abc import Callable, Sequence

from hvd_ft.system import cgroup
from hvd_ft.system.cgroup import Read, read_text

_HOST_PIDS = "pid:[4026531836]"  # the namespace of process ids that the kernel's log uses
_RECORD_BYTES = 8192
# The file that counts kills, and that of the most memory that was used, by the version.
_FILES = {
    2: ("memory.events", "memory.peak"),
    1: ("memory.oom_control", "memory.max_usage_in_bytes"),
}
_REMEDY = "give it more, or use fewer ranks a host or smaller batches"

ReadLog = Callable[[], Sequence[str]]


def kernel_log() -> list[str]:
    """Returns the records of the kernel's log; none if they may not be read or have other ids."""
    records: list[str] = []
    try:
        if os.readlink("/proc/self/ns/pid") != _HOST_PIDS:
            return []
        log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        while True:
            try:
                records.append(os.read(log, _RECORD_BYTES).decode(errors="replace"))
            except BrokenPipeError:  # a record was overwritten meanwhile; the next one follows
                continue
    except OSError:  # there is no more
        return records
    finally:
        os.close(log)


class OomWatch:
    """Watches one process.

    Args:
        pid: of the process, which has just started.
        now: seconds on CLOCK_MONOTONIC, by which the kernel's log goes too.
        read: returns the contents of a file, or None.
        read_log: returns the records of the kernel's log.
    """

    def __init__(
        self, pid: int, now: float, read: Read = read_text, read_log: ReadLog = kernel_log
    ) -> None:
        self._pid = pid
        self._since = now
        self._read = read
        self._read_log = read_log
        self._groups: list[tuple[int, str]] = []
        self._kills: int | None = None
        self.look()

    def look(self) -> None:
        """Notes the process's control group and its counter; called now and then while it lives."""
        text = self._read(f"/proc/{self._pid}/cgroup")
        if text is not None:
            self._groups = list(cgroup.groups(text))
            self._kills = self._count()

    def verdict(self) -> str:
        """Returns why the process, which SIGKILL has ended, was killed; "" if not for its memory.

        The text says what was used up and what to do.
        """
        if told := _told(self._read_log(), self._pid, self._since):
            return self._by_log(told)
        kills = self._count()
        if kills is None or self._kills is None or kills <= self._kills:
            return ""
        for version, directory in self._groups:
            most = cgroup.limit(self._read, version, directory)
            if most is not None:
                return _text(self._used_of(version, directory, most))
        return _text("the host has no more")

    def _count(self) -> int | None:
        """Returns the kills in the innermost group that can be seen."""
        for version, directory in self._groups:
            count = cgroup.number_in(self._read(f"{directory}/{_FILES[version][0]}"), "oom_kill")
            if count is not None:
                return count
        return None

    def _by_log(self, told: dict[str, str]) -> str:
        own = f"{_size(int(told.get('rss', 0)) << 10)} used by this process"
        group = told.get("group")
        if group is None:
            return _text(f"the host has no more, {own}")
        for version, root in cgroup.ROOTS.items():
            directory = root + group
            most = cgroup.limit(self._read, version, directory)
            if most is not None:
                return _text(self._used_of(version, directory, most))
        return _text(f"the control group {group} has no more, {own}")

    def _used_of(self, version: int, directory: str, most: int) -> str:
        try:
            used = min(int(self._read(f"{directory}/{_FILES[version][1]}") or ""), most)
        except ValueError:  # a kernel that does not count it
            used = most
        return f"{_size(used)} used of {_size(most)} of the control group {directory}"


def _told(records: Sequence[str], pid: int, since: float) -> dict[str, str] | None:
    """Returns the kernel's log entry about a process killed since then; None: there is none."""
    found: dict[str, str] = {}
    killed = False
    for record in records:
        header, _, text = record.partition(";")
        times = header.split(",")
        if len(times) < 3 or not times[2].isdecimal() or int(times[2]) / 1e6 < since:
            continue
        if re.search(rf"\boom-kill:.*\bpid={pid}\b", text):
            group = re.search(r"\bCONSTRAINT_MEMCG\b.*\boom_memcg=([^,\n]+)", text)
            found = {"group": group[1]} if group else {}
        elif re.search(rf"\bKilled process {pid} \(", text):
            killed = True
            if resident := re.search(r"\banon-rss:(\d+)kB", text):
                found["rss"] = resident[1]
    return found if killed else None


def _text(used: str) -> str:
    return f"killed for lack of memory: {used}; {_REMEDY}"


def _size(count: int) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count / (1 << 10):.1f} KiB"
