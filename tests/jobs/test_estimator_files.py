"""An Estimator without a model directory writes nothing: every system call is watched."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import SCRIPTS, RunHvdft

pytest.importorskip("tensorflow_estimator")

SCRIPT = str(SCRIPTS / "files_script.py")
CALLS = (
    "open,openat,openat2,creat,mkdir,mkdirat,mknod,mknodat,rename,renameat,renameat2,link,linkat,"
    "symlink,symlinkat,unlink,unlinkat,rmdir,truncate"
)
# Nothing of these reaches a disk: devices, and the job's own arenas.
ELSEWHERE = re.compile(r'"(/dev/(?!shm)|/proc/|/sys/)')


def tracing() -> list[str]:
    """The command that runs another one and traces it, as its child."""
    if shutil.which("strace") is None:
        pytest.skip("strace was not found")
    options = ["-D", "-f", "-qq", "-y", "-e", f"trace={CALLS}"]
    for more in (["--seccomp-bpf"], []):
        tried = ["strace", *more, *options, "-o", "/dev/null", "true"]
        if subprocess.run(tried, check=False, capture_output=True).returncode == 0:
            return ["strace", *more, *options]
    pytest.skip("strace may not trace here")


@pytest.fixture
def written(run_hvdft: RunHvdft, tmp_path: Path) -> Callable[..., dict[str, list[str]]]:
    """Gives a function that tries the ways on two ranks and returns the calls that write."""
    tmpdir = tmp_path / "tmp"
    tmpdir.mkdir()
    trace = tracing()

    def run(*ways: str, drills: Sequence[str] = (), **env: Any) -> dict[str, list[str]]:
        command = f"{sys.executable} {SCRIPT} {' '.join(ways)}"
        script = f'exec "$@" -o {tmp_path}/$HOROVOD_RANK-$HOROVOD_FT_INCARNATION.trace {command}'
        inject = [word for drill in drills for word in ("--inject", drill)]
        ended = run_hvdft(
            ["run", "-np", "2", *inject, "sh", "-c", script, "sh", *trace],
            env={"TMPDIR": str(tmpdir), "PYTHONDONTWRITEBYTECODE": "1", **env},
        )
        assert ended.code == 0, ended.err
        done = sorted(re.findall(r"DONE (\d) (\w+)", ended.out))
        assert done == sorted((rank, way) for rank in "01" for way in ways), ended.out
        files = sorted(tmp_path.glob("*.trace"))
        assert len(files) == 2 + len(drills)
        traces = [file.read_text(errors="replace") for file in files]
        return {way: [call for trace in traces for call in writing(trace, way)] for way in ways}

    return run


def whole(lines: list[str]) -> Iterator[str]:
    """Joins calls in which another thread's came between."""
    begun: dict[str, str] = {}
    for line in lines:
        thread, _, call = line.partition(" ")
        resumed = re.match(r" *<\.\.\. \w+ resumed>", call)
        if line.endswith("<unfinished ...>"):
            begun[thread] = line.removesuffix("<unfinished ...>")
        elif resumed and thread in begun:
            yield begun.pop(thread) + call[resumed.end() :]
        else:
            yield line


def writing(trace: str, way: str) -> list[str]:
    before, mark, after = trace.partition(f'"/MARK-{way}"')
    assert mark, f"{way} is missing in the trace: {before[-500:]}"
    found = []
    for line in whole(after.partition('"/MARK-')[0].splitlines()[1:-1]):
        opens = re.search(r"\b(?:open|openat|openat2)\(", line)
        if opens and not re.search(r"O_(?:WRONLY|RDWR|CREAT|TRUNC|APPEND|TMPFILE)\b", line):
            continue
        if " = -1 " in line or "--- SIG" in line or "+++ " in line or ELSEWHERE.search(line):
            continue
        if '"/dev/shm/' in line and "/hvdft-" in line:
            continue
        found.append(line)
    return found


def test_calls_of_several_threads_are_told_apart() -> None:
    trace = """\
7 unlink("/MARK-plain") = -1 ENOENT
7 openat(AT_FDCWD, "/proc/cpuinfo", O_RDONLY <unfinished ...>
8 openat(AT_FDCWD, "/tmp/x", O_WRONLY|O_CREAT, 0600 <unfinished ...>
7 <... openat resumed>)             = 8</proc/cpuinfo>
8 <... openat resumed>)             = 9</tmp/x>
7 unlink("/MARK-end") = -1 ENOENT
"""
    [call] = writing(trace, "plain")
    assert "/tmp/x" in call


def test_a_stock_estimator_writes_and_a_run_config_keeps_it_from_it(
    written: Callable[..., dict[str, list[str]]], tmp_path: Path
) -> None:
    """So the test sees what it looks for, on both ranks."""
    found = written("config", "plain")
    assert found["config"] == []
    calls = "\n".join(found["plain"])
    assert len(re.findall(r'mkdir\("[^"]*/tmp/tmp\w+"', calls)) == 2, calls
    for name in ("model.ckpt", "events.out", "graph.pbtxt", "/eval/", "/eval_last/"):
        assert name in calls, name
    left = [path.name for path in (tmp_path / "tmp").rglob("model.ckpt-20.index")]
    # Rank 1 trains with FaultTolerance, which takes its directory away.
    assert len(left) == 1


@pytest.mark.shows
def test_a_patched_estimator_writes_nothing(
    written: Callable[..., dict[str, list[str]]], patched_estimator: Path, tmp_path: Path
) -> None:
    assert written("plain", PYTHONPATH=str(patched_estimator)) == {"plain": []}
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_canned_estimator_writes_nothing_and_leaves_nothing_when_it_is_killed(
    written: Callable[..., dict[str, list[str]]], tmp_path: Path
) -> None:
    """AutoGraph generates code for it."""
    assert written("canned", drills=["rank=1,step=4"]) == {"canned": []}
    assert list((tmp_path / "tmp").iterdir()) == []
