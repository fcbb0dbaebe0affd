"""The CPU time and the processes that control groups leave, of both versions."""

from hvd_ft.system.cgroup_limits import cpu_quota, processes_left, throttled

ROOT = "/sys/fs/cgroup"
V1 = "9:cpu,cpuacct:/pod/job\n8:pids:/pod\n4:memory:/\n"


def read(groups: str, **files: str):  # type: ignore[no-untyped-def]
    known = {f"{ROOT}/{name}": text for name, text in files.items()}
    return ({"/proc/self/cgroup": groups} | known).get


def test_the_narrowest_group_counts() -> None:
    files = {
        "a/b/cpu.max": "300000 100000\n",
        "a/cpu.max": "150000 100000\n",
        "cpu.max": "800000 100000",
    }
    assert cpu_quota(read("0::/a/b\n", **files)) == 1.5
    assert cpu_quota(read("0::/a/b\n", **{"a/b/cpu.max": "max 100000\n"})) is None
    pids = {"a/pids.max": "50\n", "a/pids.current": "41\n", "a/b/pids.max": "max\n"}
    assert processes_left(read("0::/a/b\n", **pids)) == 9
    assert processes_left(read("0::/a/b\n", **{**pids, "a/pids.current": "60\n"})) == 0
    assert processes_left(read("0::/a/b\n")) is None


def test_version_1_has_a_folder_for_each_controller() -> None:
    files = {
        "cpu/pod/job/cpu.cfs_quota_us": "-1\n",
        "cpu/pod/job/cpu.cfs_period_us": "100000\n",
        "cpu/pod/cpu.cfs_quota_us": "50000\n",
        "cpu/pod/cpu.cfs_period_us": "100000\n",
        "memory/cpu.cfs_quota_us": "1\n",
        "memory/cpu.cfs_period_us": "100000\n",
    }
    assert cpu_quota(read(V1, **files)) == 0.5
    pids = {"pids/pod/pids.max": "7\n", "pids/pod/pids.current": "3\n"}
    assert processes_left(read(V1, **pids)) == 4


def test_how_often_a_group_was_stopped() -> None:
    stat = "nr_periods 100\nnr_throttled 40\nthrottled_usec 9\n"
    files = {"a/cpu.stat": "usage_usec 5\nnr_periods 0\nnr_throttled 0\n", "cpu.stat": stat}
    assert throttled(read("0::/a\n", **files)) == (40, 100)
    assert throttled(read("0::/a\n")) == (0, 0)
    assert throttled(read("")) == (0, 0)
