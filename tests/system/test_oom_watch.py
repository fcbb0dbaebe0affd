"""Who was killed for lack of memory, by recorded files of both versions of groups, and the log."""

from collections.abc import Sequence

import pytest

from hvd_ft.system import oom

PID = 10919
LIMIT = 64 << 20
# As Linux 6.18 writes them.
LOG = [
    "4,339,1705500961,-;python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0\n",
    "6,418,1705501499,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,"
    f"mems_allowed=0,oom_memcg=/job,task_memcg=/job/step,task=python3,pid={PID},uid=0\n",
    f"3,419,1705501521,-;Memory cgroup out of memory: Killed process {PID} (python3) total-vm:"
    "221368kB, anon-rss:72256kB, file-rss:3672kB, shmem-rss:0kB, UID:0 oom_score_adj:0\n",
]
OF_HOST = [
    line.replace("CONSTRAINT_MEMCG", "CONSTRAINT_NONE").replace("oom_memcg=/job,", "global_oom,")
    for line in LOG
]


class Machine:
    """The files of a machine whose process is in /job/step, of which /job has the limit."""

    def __init__(self, version: int, log: Sequence[str] = ()) -> None:
        self.log = log
        self.version = version
        root = "/sys/fs/cgroup" if version == 2 else "/sys/fs/cgroup/memory"
        self.step = f"{root}/job/step"
        if version == 2:
            groups = "0::/job/step\n"
            limits = {"memory.max": ("max\n", f"{LIMIT}\n"), "memory.peak": ("9\n", "67000000\n")}
        else:
            groups = "9:name=systemd:/x\n4:memory:/job/step\n"
            limits = {
                "memory.limit_in_bytes": (f"{(1 << 63) - 4096}\n", f"{LIMIT}\n"),
                "memory.max_usage_in_bytes": ("9\n", "67000000\n"),
            }
        self.files = {f"/proc/{PID}/cgroup": groups}
        for name, (inner, outer) in limits.items():
            self.files |= {f"{self.step}/{name}": inner, f"{root}/job/{name}": outer}
        self.kills(3)

    def kills(self, count: int) -> None:
        """So many were killed in the group by now."""
        self.files |= (
            {f"{self.step}/memory.events": f"low 0\noom {count}\noom_kill {count}\n"}
            if self.version == 2
            else {f"{self.step}/memory.oom_control": f"under_oom 0\noom_kill {count}\n"}
        )

    def watch(self) -> oom.OomWatch:
        return oom.OomWatch(PID, 1700.0, self.files.get, lambda: self.log)

    def is_dead(self) -> None:
        """Version 1 puts who has ended into the root."""
        self.files[f"/proc/{PID}/cgroup"] = "4:memory:/\n0::/\n"


@pytest.mark.parametrize("version", [1, 2])
def test_the_counter_of_its_group_has_risen(version: int) -> None:
    machine = Machine(version)
    watch = machine.watch()
    machine.kills(4)
    machine.is_dead()
    said = watch.verdict()
    group = machine.step.removesuffix("/step")
    assert said == (
        "killed for lack of memory: 63.9 MiB used of 64.0 MiB of the control group "
        f"{group}; give it more, or use fewer ranks a host or smaller batches"
    )


@pytest.mark.parametrize("version", [1, 2])
def test_who_died_earlier_in_its_group_was_another_one(version: int) -> None:
    machine = Machine(version)
    watch = machine.watch()
    machine.kills(4)
    watch.look()
    assert watch.verdict() == ""


@pytest.mark.parametrize("version", [1, 2])
def test_who_has_moved_is_counted_where_it_is(version: int) -> None:
    machine = Machine(version)
    there = machine.files.pop(f"/proc/{PID}/cgroup")
    machine.files[f"/proc/{PID}/cgroup"] = "4:memory:/other\n0::/other\n"
    watch = machine.watch()
    machine.files[f"/proc/{PID}/cgroup"] = there
    watch.look()
    machine.kills(4)
    assert watch.verdict().startswith("killed for lack of memory: 63.9 MiB")


def test_without_a_limit_it_was_the_host() -> None:
    machine = Machine(2)
    machine.files = {name: text for name, text in machine.files.items() if "max" not in name}
    watch = machine.watch()
    machine.kills(4)
    assert watch.verdict().startswith("killed for lack of memory: the host has no more; give it")


def test_a_kernel_that_counts_no_peak_had_its_limit() -> None:
    machine = Machine(2)
    machine.files = {name: text for name, text in machine.files.items() if "peak" not in name}
    watch = machine.watch()
    machine.kills(4)
    assert "64.0 MiB used of 64.0 MiB" in watch.verdict()


@pytest.mark.parametrize("version", [1, 2])
def test_the_kernels_log_names_the_process(version: int) -> None:
    machine = Machine(version, LOG)
    assert "63.9 MiB used of 64.0 MiB of the control group" in machine.watch().verdict()
    machine.files = {}  # groups that cannot be seen from here
    said = machine.watch().verdict()
    assert "the control group /job has no more, 70.6 MiB used by this process; give" in said


def test_the_kernels_log_says_that_it_was_the_host() -> None:
    machine = Machine(2, OF_HOST)
    said = machine.watch().verdict()
    assert said.startswith("killed for lack of memory: the host has no more, 70.6 MiB used by this")


@pytest.mark.parametrize(
    "log",
    [
        [line.replace(str(PID), f"{PID}0") for line in LOG],  # another process
        [line.replace(",1705", ",1005") for line in LOG],  # one that had this number before
        LOG[:2],  # it was only considered
        ["nonsense", "", "1,2;Killed process 10919 (x)", f"a,b,c,-;Killed process {PID} (x)"],
    ],
)
def test_of_others_the_log_says_nothing_of_this_one(log: list[str]) -> None:
    assert Machine(1, log).watch().verdict() == ""


def test_without_any_file_nothing_is_said() -> None:
    assert oom.OomWatch(PID, 0.0, lambda name: None, list).verdict() == ""


def test_this_machines_log_can_be_read_or_not() -> None:
    for record in oom.kernel_log():
        assert ";" in record
