"""What fails when all ranks are done holds nobody up: a lost host, a stopped mpirun."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import pytest
from conftest import running_cluster
from test_generations import SUMS
from test_network import LIMITS, Running, digest

from hvd_ft.reports.report import read_report

OPS, SIZE = 30, 4096
HVDFT = [sys.executable, "-m", "hvd_ft.cli"]


def begin(command: Sequence[str], env: Mapping[str, str]) -> Running:
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **env},
    )
    running = Running(process)
    threading.Thread(target=running.listen, daemon=True).start()
    return running


def sums_are_right(out: str) -> bool:
    return sorted(out.splitlines()) == [f"SUMS {r} 0 {digest(OPS, SIZE, 2)}" for r in range(2)]


@pytest.mark.shows(later=True)
@pytest.mark.parametrize("lost", ["n0", "n1"], ids=["rank 0's host", "another one"])
def test_a_host_that_dies_when_its_ranks_are_done_is_not_waited_for(
    tmp_path: Path, lost: str
) -> None:
    """`hvdft run` is on the other one, and would have waited for five minutes."""
    go = tmp_path / "go"
    done, last = int(lost[1]), 1 - int(lost[1])
    script = f'"$@" && while [ $HOROVOD_RANK = {last} ] && [ ! -e {go} ]; do sleep 0.1; done'
    work = ["sh", "-c", script, "sh", *SUMS, str(OPS), str(SIZE), "5"]
    with running_cluster() as cluster:
        report = tmp_path / "report.jsonl"
        job = [*HVDFT, "run", "-np", "2", "-H", "n0:1,n1:1", "--report", str(report), *work]
        enter = [*HVDFT, "cluster", "exec", "--name", cluster.name, f"n{last}", "--"]
        running = begin([*enter, *job], LIMITS)
        running.await_line(f"rank {done} (incarnation 0) has ended")
        assert cluster.hvdft("kill", lost).code == 0
        go.touch()
        code, out, err = running.end()
    assert code == 0, err
    assert sums_are_right(out), (out, err)
    assert f"host {lost} (rank {done}) is lost; the job is over" in err, err
    assert f"host n{last}" not in err, err
    assert read_report(report).finished == (last == 0), "where rank 0 has seen the end"


@pytest.mark.shows
def test_an_mpirun_that_is_stopped_continues_when_the_job_is_over(arena_dir: Path) -> None:
    """And nothing that the scripts have written is missing."""
    drill = ["--inject", "rank=0,step=10,raise"]  # nothing comes of it but that it is told
    job = ["run", "-np", "2", *drill, *SUMS, str(OPS), str(SIZE), "5", "0.05"]
    limits = {"HOROVOD_FT_LEASE_SECONDS": "60"}  # longer than the job
    running = begin([*HVDFT, *job], {**limits, "HOROVOD_FT_ARENA_DIR": str(arena_dir)})
    running.await_line("is running at step")
    [mpirun] = [
        process
        for process in psutil.Process(running.process.pid).children()
        if "mpiexec.hydra" in process.name()
    ]
    mpirun.send_signal(signal.SIGSTOP)
    code, out, err = running.end()
    assert code == 0, err
    assert sums_are_right(out), (out, err)
    assert f"mpirun (pid {mpirun.pid}) was stopped for" in err, err
    assert "does not answer" not in err, err


@pytest.mark.shows
def test_a_training_that_ends_within_its_grace_has_a_code_of_its_own(
    arena_dir: Path, tmp_path: Path
) -> None:
    """Without snapshots there can be no checkpoint, and nothing is to be started again."""
    flags = ["--grace", "500", "--checkpoint-dir", str(tmp_path / "c")]
    drill = ["--inject", "rank=0,step=10,raise"]  # nothing comes of it but that it is told
    job = ["run", "-np", "2", *flags, *drill, *SUMS, str(OPS), str(SIZE), "0", "0.1"]
    running = begin([*HVDFT, *job], {"HOROVOD_FT_ARENA_DIR": str(arena_dir)})
    running.await_line("hvdft: drill")
    running.process.send_signal(signal.SIGTERM)
    code, out, err = running.end()
    assert "preempted: a checkpoint is written" in err, err
    assert (code, sums_are_right(out)) == (0, True), (out, err)
