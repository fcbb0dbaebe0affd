"""The memory that control groups leave, of both versions, seen from inside and outside."""

import pytest

from hvd_ft.system import cgroup
from hvd_ft.system.memory_left import FILESYSTEM, HOST, is_in_memory, memory_left

GIB = 1 << 30
NO_LIMIT = str((1 << 63) - 4096)  # what version 1 says
ROOT = "/sys/fs/cgroup"


def left(groups: str, files: dict[str, str]) -> int | None:
    """What is left, given the lines of /proc/self/cgroup and the files of groups."""
    known = {"/proc/self/cgroup": groups, **{f"{ROOT}/{name}": files[name] for name in files}}
    return cgroup.memory_left(known.get)


def version_2(name: str, limit: str, used: int, cache: int = 0) -> dict[str, str]:
    stat = f"anon 5\ninactive_file {cache}\nactive_file 9\n"
    files = {"memory.max": f"{limit}\n", "memory.current": f"{used}\n", "memory.stat": stat}
    return {f"{name}/{file}".lstrip("/"): text for file, text in files.items()}


def version_1(name: str, limit: str, used: int, cache: int = 0) -> dict[str, str]:
    stat = f"inactive_file 1\ntotal_inactive_file {cache}\n"
    files = {"limit_in_bytes": f"{limit}\n", "usage_in_bytes": f"{used}\n", "stat": stat}
    return {f"memory{name}/memory.{file}": text for file, text in files.items()}


def test_version_2_has_a_limit() -> None:
    files = version_2("/job", str(4 * GIB), 3 * GIB, cache=GIB // 2)
    assert left("0::/job\n", files) == 3 * GIB // 2


def test_the_groups_above_count_too() -> None:
    files = {
        **version_2("/slurm/job/step", "max", GIB),
        **version_2("/slurm/job", str(2 * GIB), GIB),
        **version_2("/slurm", str(9 * GIB), 8 * GIB + GIB // 2),
    }
    assert left("0::/slurm/job/step\n", files) == GIB // 2


def test_without_a_limit_nothing_is_said() -> None:
    assert left("0::/job\n", version_2("/job", "max", GIB)) is None
    assert left("0::/\n", {}) is None  # the root has no such files
    assert left("", {}) is None  # no Linux with groups
    assert left("4:memory:/job\n", version_1("/job", NO_LIMIT, GIB)) is None


def test_a_group_over_its_limit_leaves_nothing() -> None:
    assert left("0::/job\n", version_2("/job", str(GIB), 2 * GIB)) == 0


def test_version_1_has_a_limit() -> None:
    groups = "12:cpu,cpuacct:/x\n5:hugetlb,memory:/job\n1:name=systemd:/job\n0::/job\n"
    files = version_1("/job", str(4 * GIB), 3 * GIB, cache=GIB // 2)
    assert left(groups, files) == 3 * GIB // 2


@pytest.mark.parametrize("name", ["/docker/abc", "/../../docker/abc", "/"])
def test_a_container_sees_only_its_own_group(name: str) -> None:
    assert left(f"0::{name}\n", version_2("", str(2 * GIB), GIB)) == GIB
    assert left(f"5:memory:{name}\n", version_1("", str(2 * GIB), GIB)) == GIB


def test_files_that_are_no_numbers_are_passed_over() -> None:
    files = {"job/memory.max": "7 GiB\n", "job/memory.current": "1\n"}
    assert left("0::/job\n", files) is None
    assert left("0::/job\n", {"job/memory.max": f"{GIB}\n"}) is None


MOUNTS = [("/", "ext4"), ("/dev", "tmpfs"), ("/dev/shm", "tmpfs"), ("/mnt", "tmpfs")]


@pytest.mark.parametrize(
    ("path", "mounts", "in_memory"),
    [
        ("/dev/shm/hvdft-0", MOUNTS, True),
        ("/dev/shm", MOUNTS, True),
        ("/srv/x", MOUNTS, False),
        ("/mnt2", MOUNTS, False),  # only begins like it
        ("/mnt/a", [*MOUNTS, ("/mnt", "xfs")], False),  # the later one hides the first
        ("/a", [], False),
    ],
)
def test_a_file_system_in_memory(path: str, mounts: list[tuple[str, str]], in_memory: bool) -> None:
    assert is_in_memory(path, mounts) == in_memory


def test_this_machine() -> None:
    found = {left.of: left.bytes for left in memory_left("/dev/shm")}
    assert found[FILESYSTEM] > 0
    assert found[HOST] > 0
