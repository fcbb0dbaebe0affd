"""Why a rank is slow, where the system tells: two readings of its host are compared.

Pure but for `read_host`, which reads /proc and the control groups. A cause is a sentence for the
user; there may be several, or none.
"""

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hvd_ft.agent.slow_rule import percent
from hvd_ft.system.cgroup import Read, groups, number_in, read_text
from hvd_ft.system.process_placement import memory_of, total
from hvd_ft.system.topology import numbers

_HZ = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGESIZE")
# What is worth a sentence: a share of the time, or of the memory.
_THROTTLED, _STOLEN, _OTHERS, _ASLEEP, _FAR = 0.02, 0.05, 0.25, 0.15, 0.5
_QUEUED = 0.1
_BUSY = 0.9  # of its CPUs: then another process there takes something from it
_SWAPPED_BYTES = 1 << 20  # a second
_IDLE, _IOWAIT, _STEAL = 3, 4, 7  # of the fields of a line of /proc/stat, from `user` on
_BEHIND_NAME = {"utime": 11, "stime": 12, "processor": 36}  # of /proc/<pid>/stat
_NODES = "/sys/devices/system/node"


@dataclass(frozen=True)
class Process:
    """A process.

    Attributes:
        name: its program's.
        cpu: CPU time that it has used, in seconds.
        last_cpu: number of the CPU where its first thread ran last.
    """

    name: str
    cpu: float
    last_cpu: int


@dataclass(frozen=True)
class Cpu:
    """A CPU.

    Attributes:
        idle: seconds for which it was, so far.
        stolen: seconds for which another virtual machine had it.
    """

    idle: float
    stolen: float


@dataclass(frozen=True)
class Thread:
    """A thread of a worker.

    Attributes:
        ran: seconds for which it had a CPU, so far.
        queued: seconds for which it could have run, and had none.
    """

    ran: float
    queued: float


@dataclass(frozen=True)
class Worker:
    """What the system says about a rank's worker.

    Attributes:
        pid: of the process.
        cpus: on which it may run.
        throttled: seconds for which its control groups were.
        swap_bytes: of its memory.
        memory: its bytes on each NUMA node, where there are several.
        near: the NUMA nodes of its CPUs.
        threads: by id.
    """

    pid: int
    cpus: frozenset[int] = frozenset()
    throttled: float = 0.0
    swap_bytes: int = 0
    memory: Mapping[int, int] = field(default_factory=dict)
    near: frozenset[int] = frozenset()
    threads: Mapping[int, Thread] = field(default_factory=dict)


@dataclass(frozen=True)
class Reading:
    """A host at one moment.

    Attributes:
        time: in seconds, on any steady clock.
        workers: by rank.
        processes: all that can be seen, by pid.
        cpus: of the host, by number.
        swapped_bytes: of all memory of the host, so far, in and out.
    """

    time: float
    workers: Mapping[int, Worker] = field(default_factory=dict)
    processes: Mapping[int, Process] = field(default_factory=dict)
    cpus: Mapping[int, Cpu] = field(default_factory=dict)
    swapped_bytes: int = 0


def causes(before: Reading, after: Reading, ranks: Collection[int]) -> tuple[str, ...]:
    """Returns what the system tells about slow ranks of this host, in sentences without a subject.

    Args:
        before: a reading, some seconds before …
        after: … this one.
        ranks: those that are slow.
    """
    seconds = after.time - before.time
    pairs = [
        (before.workers[rank], after.workers[rank])
        for rank in ranks
        if rank in before.workers and rank in after.workers
    ]
    pairs = [(old, new) for old, new in pairs if old.pid == new.pid]
    if seconds <= 0 or not pairs:
        return ()
    found = [
        _throttled(pairs, seconds),
        _swapping(pairs, (after.swapped_bytes - before.swapped_bytes) / seconds),
        _stolen(before, after, pairs, seconds),
        _queued(pairs, seconds),
        _others(before, after, pairs, seconds),
        _idle(before, after, pairs, seconds),
        _far(pairs),
    ]
    return tuple(sentence for sentence in found if sentence)


_Pairs = Sequence[tuple[Worker, Worker]]


def _throttled(pairs: _Pairs, seconds: float) -> str | None:
    share = max(new.throttled - old.throttled for old, new in pairs) / seconds
    if share < _THROTTLED:
        return None
    return (
        f"its control group has throttled its CPU for {percent(share)} of the time (cpu.stat): it "
        "wants more than cpu.max allows"
    )


def _swapping(pairs: _Pairs, rate: float) -> str | None:
    swap = max(new.swap_bytes for _, new in pairs)
    if rate < _SWAPPED_BYTES or not swap:
        return None
    return (
        f"its host swaps {rate / (1 << 20):.0f} MiB a second, and {swap / (1 << 20):.0f} MiB of "
        "its memory are swapped out"
    )


def _stolen(before: Reading, after: Reading, pairs: _Pairs, seconds: float) -> str | None:
    cpus = _cpus(before, after, pairs)
    share = sum(after.cpus[cpu].stolen - before.cpus[cpu].stolen for cpu in cpus) / seconds
    if not cpus or share < _STOLEN * len(cpus):
        return None
    share /= len(cpus)
    return f"another virtual machine takes {percent(share)} of its CPUs (steal time)"


def _queued(pairs: _Pairs, seconds: float) -> str | None:
    """Says that it waits for a CPU, but for the time for which its control group is throttled."""
    throttled = max(new.throttled - old.throttled for old, new in pairs) / seconds
    share = max(_queue_share(old, new, seconds) for old, new in pairs) - throttled
    if share < _QUEUED:
        return None
    return f"it waits for a CPU for {percent(share)} of the time (schedstat): its CPUs are full"


def _queue_share(old: Worker, new: Worker, seconds: float) -> float:
    """Returns the share of the time for which the thread that wanted most had no CPU."""
    wanted = {
        thread: (now.ran - old.threads[thread].ran, now.queued - old.threads[thread].queued)
        for thread, now in new.threads.items()
        if thread in old.threads
    }
    return max(wanted.values(), key=sum)[1] / seconds if wanted else 0.0


def _cpus(before: Reading, after: Reading, pairs: _Pairs) -> set[int]:
    """Returns the CPUs on which the slow ranks may run."""
    return {cpu for _, new in pairs for cpu in new.cpus} & before.cpus.keys() & after.cpus.keys()


def _others(before: Reading, after: Reading, pairs: _Pairs, seconds: float) -> str | None:
    """Names the busiest process, but for the workers, that takes CPUs of the slow ranks."""
    cpus = _cpus(before, after, pairs)
    idle = sum(after.cpus[cpu].idle - before.cpus[cpu].idle for cpu in cpus) / seconds
    if idle > (1 - _BUSY) * len(cpus):
        return None
    ours = {worker.pid for worker in after.workers.values()}
    used = {
        pid: (process.cpu - before.processes[pid].cpu) / seconds
        for pid, process in after.processes.items()
        if pid in before.processes and pid not in ours and process.last_cpu in cpus
    }
    if not used:
        return None
    pid = max(used, key=lambda each: used[each])
    if used[pid] < _OTHERS:
        return None
    name = after.processes[pid].name
    return f"process {pid} ({name}) takes {percent(used[pid])} of a CPU that it may use"


def _idle(before: Reading, after: Reading, pairs: _Pairs, seconds: float) -> str | None:
    """Says that it waits, but for no other rank: a slow rank has nothing to wait for there."""

    def use(old: Worker, new: Worker) -> float | None:
        first, last = before.processes.get(old.pid), after.processes.get(new.pid)
        return (last.cpu - first.cpu) / seconds if first and last else None

    slow = [share for pair in pairs if (share := use(*pair)) is not None]
    queued = max(_queue_share(*pair, seconds) for pair in pairs)  # then it does not sleep
    if not slow or max(slow) + queued > 1 - _ASLEEP:
        return None
    return (
        f"it uses {percent(max(slow))} of a CPU, though the others wait for it: its script waits "
        "for its input, a disk or a lock, or sleeps"
    )


def _far(pairs: _Pairs) -> str | None:
    for _, new in pairs:
        whole = sum(new.memory.values())
        far = sum(part for node, part in new.memory.items() if node not in new.near)
        if whole and len(new.memory) > 1 and far >= _FAR * whole:
            return f"{percent(far / whole)} of its memory is on another NUMA node than its CPUs"
    return None


# ---------------------------------------------------------------- reading


def read_host(pids: Mapping[int, int]) -> Reading:
    """Takes a reading of this host.

    Args:
        pids: its workers, by rank.
    """
    return reading(pids, read_text, os.listdir, time.monotonic())


def reading(
    pids: Mapping[int, int], read: Read, names: Callable[[str], Sequence[str]], now: float
) -> Reading:
    """Takes a reading from files.

    Args:
        pids: workers, by rank.
        read: returns the contents of a file, or None.
        names: returns the names in a folder.
        now: the time, in seconds.
    """
    seen = {int(name) for name in names("/proc") if name.isdecimal()}
    processes = {pid: found for pid in seen if (found := _process(read(f"/proc/{pid}/stat")))}
    vmstat = read("/proc/vmstat")
    swapped = sum(number_in(vmstat, name) or 0 for name in ("pswpin", "pswpout"))
    nodes = numbers(read(f"{_NODES}/online"))
    near = {node: frozenset(numbers(read(f"{_NODES}/node{node}/cpulist"))) for node in nodes}
    workers = {rank: _worker(pid, read, names, near) for rank, pid in pids.items()}
    cpus = dict(_cpu_times(read("/proc/stat") or ""))
    return Reading(now, workers, processes, cpus, swapped * _PAGE)


def _process(stat: str | None) -> Process | None:
    name, _, rest = (stat or "").partition("(")[2].rpartition(")")
    words = rest.split()
    if len(words) <= max(_BEHIND_NAME.values()):
        return None
    ticks = int(words[_BEHIND_NAME["utime"]]) + int(words[_BEHIND_NAME["stime"]])
    return Process(name, ticks / _HZ, int(words[_BEHIND_NAME["processor"]]))


def _worker(
    pid: int,
    read: Read,
    names: Callable[[str], Sequence[str]],
    near: Mapping[int, frozenset[int]],
) -> Worker:
    lines = (read(f"/proc/{pid}/status") or "").splitlines()
    status = dict(line.split(":", 1) for line in lines if ":" in line)
    cpus = frozenset(numbers(status.get("Cpus_allowed_list")))
    swap = (status.get("VmSwap") or "0").split()[0]
    several = len(near) > 1
    return Worker(
        pid,
        cpus,
        _throttled_seconds(read(f"/proc/{pid}/cgroup") or "", read),
        int(swap) << 10 if swap.isdecimal() else 0,
        total(memory_of(pid, read)) if several else {},
        frozenset(node for node, of in near.items() if of & cpus),
        dict(_threads(f"/proc/{pid}/task", read, names)),
    )


def _threads(
    folder: str, read: Read, names: Callable[[str], Sequence[str]]
) -> Iterator[tuple[int, Thread]]:
    try:
        found = names(folder)
    except OSError:  # the worker has ended
        return
    for name in found:
        words = (read(f"{folder}/{name}/schedstat") or "").split()  # 52184033 1187211 310
        if name.isdecimal() and len(words) == 3:
            yield int(name), Thread(int(words[0]) / 1e9, int(words[1]) / 1e9)


def _throttled_seconds(text: str, read: Read) -> float:
    """Returns for how long a process's groups, and those above, were throttled: the most of one."""
    found = [0.0]
    for version, directory in groups(text, "cpu"):
        stat = read(f"{directory}/cpu.stat")
        if version == 1:
            found.append((number_in(stat, "throttled_time") or 0) / 1e9)
        else:
            found.append((number_in(stat, "throttled_usec") or 0) / 1e6)
    return max(found)


def _cpu_times(stat: str) -> Iterator[tuple[int, Cpu]]:
    for line in stat.splitlines():  # cpu0 10132153 290696 3084719 46828483 16683 0 25195 0 175628 0
        name, *values = line.split()
        if name.startswith("cpu") and name[3:].isdecimal() and len(values) > _STEAL:
            idle = int(values[_IDLE]) + int(values[_IOWAIT])
            yield int(name[3:]), Cpu(idle / _HZ, int(values[_STEAL]) / _HZ)
