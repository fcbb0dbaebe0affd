"""What `hvdft run` makes of the output of ranks: marks before lines, files, the line at the end."""

import re
import sys
from pathlib import Path

import pytest
from conftest import SCRIPTS, Cluster, RunHvdft

SUMS = [sys.executable, str(SCRIPTS / "sums_script.py")]
MARKED = {"HOROVOD_FT_OUTPUT_PREFIX": ""}  # as for a user
SCRIPT = """\
import os, signal, sys
from hvd_ft import native

worker = native.worker()
print("begin", worker.incarnation)
print("unfinished", end="")
sys.stdout.flush()
if (worker.rank, worker.incarnation) == (1, 0):
    os.kill(os.getpid(), signal.SIGKILL)
print(" no more")
print("error", file=sys.stderr)
worker.orderly_exit()
"""


@pytest.mark.shows
def test_lines_of_a_restarted_rank_are_whole_and_have_its_mark(
    run_hvdft: RunHvdft, tmp_path: Path
) -> None:
    script, folder = tmp_path / "script.py", tmp_path / "out"
    script.write_text(SCRIPT)
    flags = ["-np", "2", "--output-filename", str(folder), "--no-live"]
    ended = run_hvdft(["run", *flags, sys.executable, str(script)], env=MARKED)
    assert ended.code == 0, ended
    lines = {rank: re.findall(rf"^\[{rank}\]<stdout>:(.*)$", ended.out, re.M) for rank in (0, 1)}
    assert lines[0] == ["begin 0", "unfinished no more"]
    assert lines[1] == ["begin 0", "unfinished", "begin 1", "unfinished no more"]
    assert ended.out.count("\n") == 6
    assert sorted(re.findall(r"^\[.*error$", ended.err, re.M)) == [
        "[0]<stderr>:error",
        "[1]<stderr>:error",
    ]
    assert (folder / "rank.0" / "stdout").read_text() == "begin 0\nunfinished no more\n"
    again = "begin 0\nunfinishedbegin 1\nunfinished no more\n"
    assert (folder / "rank.1" / "stdout").read_text() == again
    assert (folder / "rank.1" / "stderr").read_text() == "error\n"


def expect_sums(out: str, folder: Path, size: int) -> None:
    """Each rank's line has its mark, and is in its file without."""
    found = re.findall(r"^\[(\d+)\]<stdout>:(SUMS (\d+) .*)$", out, re.M)
    assert sorted(int(rank) for rank, _, _ in found) == list(range(size)), out
    assert out.count("\n") == size
    for rank, line, own in found:
        assert rank == own
        assert (folder / f"rank.{rank}" / "stdout").read_text() == f"{line}\n"


@pytest.mark.shows
def test_new_agents_go_on_with_marks_and_files_and_the_end_is_told(
    run_hvdft: RunHvdft, tmp_path: Path
) -> None:
    drills = ["--inject", "agent=1,op=10", "--inject", "rank=2,op=40"]
    flags = ["-np", "3", "--output-filename", str(tmp_path), *drills]
    ended = run_hvdft(["run", *flags, *SUMS, "60", "100000", "5"], env=MARKED)
    assert ended.code == 0, ended
    expect_sums(ended.out, tmp_path, 3)
    last = ended.err.splitlines()[-1]
    assert re.fullmatch(r"hvdft: done: 60 steps, 1 failure, \d+\.\d s lost, 0 steps lost", last), (
        ended.err
    )


def test_marks_and_files_on_two_nodes(cluster: Cluster, tmp_path: Path) -> None:
    hvdft = [sys.executable, "-m", "hvd_ft.cli", "run", "-np", "3", "-H", "n0:2,n1:1"]
    job = [*hvdft, "--output-filename", str(tmp_path), *SUMS, "20", "100000", "5"]
    ended = cluster.hvdft("run", "--", "env", "HOROVOD_FT_OUTPUT_PREFIX=", *job)
    assert ended.code == 0, ended
    expect_sums(ended.out, tmp_path, 3)
