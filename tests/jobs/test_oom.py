"""The kernel's out-of-memory killer takes a worker, and training continues."""

import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import SCRIPTS, RunHvdft

from hvd_ft.native.types import EventType
from hvd_ft.reports.report import read_report

SCRIPT = str(SCRIPTS / "oom_script.py")
LIMIT = 64 << 20
# Where a version of control groups lies, the file with the limit, that for swap (if the kernel
# counts it) and what to write there, and the file that counts the kills.
V1 = ("memory", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", LIMIT, "memory.oom_control")
V2 = ("", "memory.max", "memory.swap.max", 0, "memory.events")


@dataclass(frozen=True)
class MemoryGroup:
    """A control group with a memory limit."""

    path: Path
    counter: str

    def kills(self) -> int:
        match = re.search(r"^oom_kill (\d+)$", (self.path / self.counter).read_text(), re.MULTILINE)
        assert match
        return int(match[1])


@pytest.fixture
def memory_group() -> Iterator[MemoryGroup]:
    for root, limit, swap, swap_limit, counter in (V1, V2):
        path = Path("/sys/fs/cgroup", root) / f"hvd-ft-test-{uuid.uuid4().hex[:8]}"
        try:
            path.mkdir()
        except OSError:
            continue
        try:
            (path / limit).write_text(str(LIMIT))
            if (path / swap).exists():
                (path / swap).write_text(str(swap_limit))
            subprocess.run(["sh", "-c", f"echo $$ > {path}/cgroup.procs"], check=True)  # may join
        except (
            OSError,
            subprocess.CalledProcessError,
        ):  # another version's folder, or without the memory controller
            path.rmdir()
            continue
        yield MemoryGroup(path, counter)
        path.rmdir()
        return
    pytest.skip("no memory control group can be made here (it takes root and a writable cgroup)")


def train(
    run_hvdft: RunHvdft, report: Path, env: dict[str, str]
) -> tuple[list[list[str]], list[str]]:
    """Runs the script on two ranks; returns rank, incarnation and digest of each, and all lines."""
    flags = ["-np", "2", "--report", str(report)]
    ended = run_hvdft(["run", *flags, sys.executable, SCRIPT], env=env)
    assert ended.code == 0, ended.err
    results = sorted(line.split()[1:] for line in ended.out.splitlines() if "RESULT" in line)
    return results, ended.err.splitlines()


def test_a_worker_that_the_oom_killer_takes_comes_back(
    run_hvdft: RunHvdft, memory_group: MemoryGroup, tmp_path: Path
) -> None:
    report = tmp_path / "report.jsonl"
    expected, _ = train(run_hvdft, report, {})
    digest = expected[0][2]
    assert expected == [["0", "0", digest], ["1", "0", digest]]
    assert memory_group.kills() == 0

    found, said = train(run_hvdft, report, {"GROUP": str(memory_group.path)})
    assert memory_group.kills() == 1
    failed = [e for e in read_report(report).events if e.type is EventType.FAILED]
    assert [(e.rank, os.waitstatus_to_exitcode(e.detail)) for e in failed] == [(1, -signal.SIGKILL)]
    assert found == [["0", "0", digest], ["1", "1", digest]]
    (died,) = [line for line in said if line.startswith("hvdft: rank 1 died ")]
    limit = f"{LIMIT >> 20}.0 MiB"
    assert re.search(rf"killed for lack of memory: {limit} used of {limit} of the .*; give ", died)
    (cause,) = read_report(report).causes.items()
    assert cause[0] == (1, 0) and cause[1] in died
