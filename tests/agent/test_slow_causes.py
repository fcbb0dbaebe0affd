"""Why a rank is slow, from recorded contents of /proc and of control groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hvd_ft.agent.slow_causes import Reading, causes, read_host, reading

# Of a worker, pid 3627: 250 + 30 ticks of CPU, on CPU 1 last.
STAT = (
    "{pid} ({name}) S 3620 3620 3620 0 -1 4194304 64221 0 12 0 {user} {system} 0 0 20 0 14 0 "
    "84410 654544896 80029 18446744073709551615 1 1 0 0 0 0 0 16781312 17642 0 0 0 17 {cpu} 0 0 0 "
    "0 0 0 0 0 0 0 0 0 0\n"
)
STATUS = "Name:\tpython\nVmRSS:\t  320116 kB\nVmSwap:\t{swap:8} kB\nCpus_allowed_list:\t{cpus}\n"
CPU_STAT = (
    "usage_usec 8812345\nuser_usec 8012345\nsystem_usec 800000\nnr_periods 912\n"
    "nr_throttled {periods}\nthrottled_usec {usec}\n"
)
CPU_STAT_1 = "nr_periods 912\nnr_throttled 310\nthrottled_time {ns}\n"
CPUS = (
    "cpu  20264306 581392 6169438 93656966 33366 0 50390 0 351256 0\n"
    "cpu0 10132153 290696 3084719 {idle} 16683 0 25195 {steal} 175628 0\n"
    "cpu1 10132153 290696 3084719 {idle} 16683 0 25195 {steal} 175628 0\n"
    "intr 5 0\n"
)
NUMA_MAPS = (
    "7f00 default anon=25600 dirty=25600 N0={here} N1={there} kernelpagesize_kB=4\n"
    "7f10 default file=/usr/bin/python3.11 mapped=100 N0=100 kernelpagesize_kB=4\n"
)


@dataclass
class Host:
    """A host whose ranks 0 and 1 have the workers 3627 and 3628; all by default idle and fine."""

    seconds: float = 0.0
    files: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for pid in (3627, 3628):
            self.process(pid, user=250)
            self.files[f"/proc/{pid}/status"] = STATUS.format(swap=0, cpus="0-1")
            self.files[f"/proc/{pid}/cgroup"] = "0::/job/ranks\n"
        self.cpus(idle=0, steal=0)

    def process(
        self, pid: int, *, user: int, cpu: int = 1, name: str = "python train.py (1)"
    ) -> None:
        """A process has used so many ticks."""
        text = STAT.format(pid=pid, name=name, user=user, system=30, cpu=cpu)
        self.files[f"/proc/{pid}/stat"] = text

    def cpus(self, *, idle: int, steal: int) -> None:
        self.files["/proc/stat"] = CPUS.format(idle=46828483 + idle, steal=steal)

    def read(self) -> Reading:
        return reading({0: 3627, 1: 3628}, self.files.get, self._names, self.seconds)

    def _names(self, folder: str) -> Sequence[str]:
        if folder == "/proc":
            of_processes = {path for path in self.files if path.startswith("/proc/")}
            return [*{path.split("/")[2] for path in of_processes}, "self"]
        found = {path.split("/")[4] for path in self.files if path.startswith(f"{folder}/")}
        if not found:
            raise FileNotFoundError(folder)
        return [*found]

    def thread(self, tid: int, *, ran_ms: int, queued_ms: int) -> None:
        """A thread of rank 0's worker has run for so long, and waited for a CPU."""
        text = f"{ran_ms}000000 {queued_ms}000000 310\n"
        self.files[f"/proc/3627/task/{tid}/schedstat"] = text


def found(before: Host, after: Mapping[str, str], *, idle: int = 0, steal: int = 0) -> list[str]:
    """The causes for rank 0's slowness in 3 s, in which the workers used a CPU each, …

    … and other files came to have other contents.
    """
    first = before.read()
    before.seconds += 3
    for pid in (3627, 3628):
        before.process(pid, user=550)
    before.cpus(idle=idle, steal=steal)
    before.files |= after
    return list(causes(first, before.read(), [0]))


def test_nothing_is_told_of_a_host_that_is_well() -> None:
    assert found(Host(), {}) == []
    assert found(Host(), {}, idle=200) == []


def test_a_throttled_control_group_or_one_above_it() -> None:
    for directory in ("/sys/fs/cgroup/job/ranks", "/sys/fs/cgroup/job"):
        host = Host()
        host.files[f"{directory}/cpu.stat"] = CPU_STAT.format(periods=310, usec=5_000_000)
        more = {f"{directory}/cpu.stat": CPU_STAT.format(periods=330, usec=5_930_000)}
        (cause,) = found(host, more)
        assert cause.startswith("its control group has throttled its CPU for 31 % of the time")
        first = host.read()
        host.seconds += 3
        host.process(3627, user=850)
        assert causes(first, host.read(), [0]) == ()  # no longer


def test_a_throttled_control_group_of_version_1() -> None:
    host = Host()
    host.files["/proc/3627/cgroup"] = "5:memory:/m\n4:cpu,cpuacct:/job\n0::/\n"
    path = "/sys/fs/cgroup/cpu/job/cpu.stat"
    host.files[path] = CPU_STAT_1.format(ns=10**9)
    (cause,) = found(host, {path: CPU_STAT_1.format(ns=10**9 + 600_000_000)})
    assert "for 20 % of the time" in cause


def test_swapping_if_memory_of_the_rank_is_swapped_out() -> None:
    swapped = {"/proc/vmstat": "pswpin 10000\npswpout 10000\n"}
    host = Host(files={"/proc/vmstat": "pswpin 1000\npswpout 1000\n"})
    assert found(host, swapped) == []
    host = Host(files={"/proc/vmstat": "pswpin 1000\npswpout 1000\n"})
    host.files["/proc/3627/status"] = STATUS.format(swap=51200, cpus="0-1")
    (cause,) = found(host, swapped)
    assert cause == "its host swaps 23 MiB a second, and 50 MiB of its memory are swapped out"


def test_steal_time() -> None:
    (cause,) = found(Host(), {}, steal=60)
    assert cause == "another virtual machine takes 20 % of its CPUs (steal time)"
    assert found(Host(), {}, steal=10) == []


def test_another_process_on_its_cpus_if_these_are_busy() -> None:
    def stress(user: int, cpu: int) -> dict[str, str]:
        host = Host()
        host.process(99, user=user, cpu=cpu, name="stress")
        return {"/proc/99/stat": host.files["/proc/99/stat"]}

    for cpu, idle, expected in ((1, 0, 1), (1, 200, 0), (0, 0, 0)):
        host = Host(files=stress(0, cpu))
        host.files["/proc/3627/status"] = STATUS.format(swap=0, cpus="1")
        causes_found = found(host, stress(270, cpu), idle=idle)
        assert causes_found == [
            "process 99 (stress) takes 90 % of a CPU that it may use" for _ in range(expected)
        ]
    host = Host(files=stress(0, 1))
    assert found(host, stress(30, 1)) == []


def test_a_rank_that_waits_for_a_cpu() -> None:
    for queued_ms, expected in ((510, 1), (240, 0)):
        host, later = Host(), Host()
        host.thread(3627, ran_ms=9000, queued_ms=4000)
        host.thread(3640, ran_ms=100, queued_ms=100)  # does little, and is often late
        later.thread(3627, ran_ms=9000 + 2400, queued_ms=4000 + queued_ms)
        later.thread(3640, ran_ms=110, queued_ms=1100)
        later.thread(3641, ran_ms=9999, queued_ms=9999)  # is new
        threads = {path: text for path, text in later.files.items() if "/task/" in path}
        assert found(host, threads) == [
            "it waits for a CPU for 17 % of the time (schedstat): its CPUs are full"
            for _ in range(expected)
        ]


def test_a_throttled_rank_does_not_wait_for_a_cpu_too() -> None:
    stat = "/sys/fs/cgroup/job/ranks/cpu.stat"
    host, later = Host(), Host()
    host.files[stat] = CPU_STAT.format(periods=0, usec=0)
    host.thread(3627, ran_ms=0, queued_ms=0)
    later.files[stat] = CPU_STAT.format(periods=30, usec=900_000)
    later.thread(3627, ran_ms=2000, queued_ms=1000)
    changed = {path: text for path, text in later.files.items() if "/task/" in path or path == stat}
    (cause,) = found(host, changed)
    assert cause.startswith("its control group has throttled its CPU for 30 %")


def test_a_rank_that_waits_for_a_cpu_does_not_sleep() -> None:
    for queued_ms, words in ((1200, "it waits for a CPU for 40 %"), (0, "it uses 60 % of a CPU")):
        host = Host()
        host.thread(3627, ran_ms=0, queued_ms=0)
        first = host.read()
        host.seconds += 3
        host.process(3627, user=250 + 180)
        host.thread(3627, ran_ms=1800, queued_ms=queued_ms)
        (cause,) = causes(first, host.read(), [0])
        assert cause.startswith(words)


def test_a_rank_that_waits_for_its_input() -> None:
    host = Host()
    first = host.read()
    host.seconds += 3
    host.process(3627, user=250 + 180)
    host.process(3628, user=250 + 300)
    (cause,) = causes(first, host.read(), [0])
    assert cause.startswith("it uses 60 % of a CPU, though the others wait for it")
    assert causes(first, host.read(), [1]) == ()


def test_memory_on_another_numa_node() -> None:
    files = {
        "/sys/devices/system/node/online": "0-1\n",
        "/sys/devices/system/node/node0/cpulist": "0-1\n",
        "/sys/devices/system/node/node1/cpulist": "2-3\n",
        "/proc/3627/numa_maps": NUMA_MAPS.format(here=5000, there=20000),
    }
    assert found(Host(files=dict(files)), {}) == [
        "80 % of its memory is on another NUMA node than its CPUs"
    ]
    near = {"/proc/3627/numa_maps": NUMA_MAPS.format(here=20000, there=5000)}
    assert found(Host(files=files | near), {}) == []


def test_a_worker_that_was_restarted_meanwhile_or_has_ended_is_not_compared() -> None:
    host = Host()
    first = host.read()
    later = reading({0: 3628}, host.files.get, lambda _: ["3628"], 3)
    assert causes(first, later, [0]) == ()
    assert causes(first, Reading(3), [0]) == ()
    assert causes(first, first, [0]) == ()  # no time has passed


def test_files_that_are_not_there_or_cut_off_are_no_cause() -> None:
    empty = reading({0: 1}, lambda _: None, lambda _: ["1"], 0)
    assert causes(empty, reading({0: 1}, lambda _: "", lambda _: ["1"], 3), [0]) == ()
    cut = reading(
        {0: 1}, lambda path: "1 (a" if path.endswith("stat") else None, lambda _: ["1"], 6
    )
    assert causes(empty, cut, [0]) == ()


def test_this_host_can_be_read() -> None:
    import os

    found_here = read_host({0: os.getpid()})
    assert found_here.workers[0].cpus and found_here.processes[os.getpid()].cpu > 0
    assert found_here.cpus and found_here.workers[0].threads[os.getpid()].ran > 0
