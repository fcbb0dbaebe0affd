"""The arithmetic of what failures cost, and how it is read from what trainings write down."""

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st

from experiments.elastic import host_names
from experiments.failures.model import failures_until_done, total_seconds
from experiments.failures.run import losses
from experiments.failures.watching import Killer, MemoryOverTime
from experiments.sides import Steps

NS = 1_000_000_000


def simulated(work: int, every: int, cost: int) -> tuple[int, int]:
    """A training second by second: how many failures, and how long it took."""
    done = struck = now = lost = 0
    while done < work:
        if now > 0 and now % every == 0:
            struck, lost = struck + 1, cost
        if lost > 0:
            lost -= 1
        else:
            done += 1
        now += 1
    return struck, now


@given(st.integers(1, 300), st.integers(2, 80), st.integers(0, 79))
def test_the_model_is_what_a_simulation_counts(work: int, every: int, cost: int) -> None:
    if cost >= every:
        cost = every - 1
    assert (failures_until_done(work, every, cost), total_seconds(work, every, cost)) == simulated(
        work, every, cost
    )


def test_a_training_may_never_end() -> None:
    assert total_seconds(10, 20, 30) == 10  # it is complete before the first failure
    assert total_seconds(30, 20, 20) == math.inf
    assert failures_until_done(30, 20, 25) == math.inf


def written(folder: Path, pid: int, *lines: str) -> None:
    (folder / f"{pid}").write_text("".join(f"{line}\n" for line in lines))


def seconds(number: float) -> int:
    return int(number * NS)


def test_a_standstill_lasts_until_all_have_done_a_new_step(tmp_path: Path) -> None:
    # Two ranks; the second one's process is killed at 2.5 s, and the next does step 2 again.
    written(tmp_path, 11, "start 0 0", *(f"step {n} {n * NS}" for n in (1, 2)),
            f"step 2 {seconds(6)}", f"step 3 {seconds(7.5)}", "accuracy 0.9 9")  # fmt: skip
    written(tmp_path, 12, f"step 1 {NS}", f"step 2 {2 * NS}")
    written(tmp_path, 13, f"step 2 {seconds(6.5)}", f"step 3 {seconds(7)}")
    (tmp_path / "discover_hosts.sh").touch()
    steps = Steps.read(tmp_path)
    assert steps.accuracy == 0.9
    assert steps.standstill(seconds(2.5), 2) == (5.0, seconds(7.5))
    assert steps.standstill(seconds(2.5), 3) is None
    assert steps.standstill(seconds(8), 2) is None


def test_a_kill_counts_that_is_over_before_the_next(tmp_path: Path) -> None:
    written(
        tmp_path, 1, *(f"step {n} {seconds(at)}" for n, at in ((1, 1), (2, 2), (3, 9), (4, 10)))
    )
    steps = Steps.read(tmp_path)
    assert steps.step_seconds == 1.0
    kills = [seconds(at) for at in (2.5, 5)]
    assert losses(kills, steps, 1) == [{"lost_s": 3.0}]  # the second one, 4 s less a step's
    assert losses(kills[:1], steps, 1) == [{"lost_s": 5.5}]
    assert losses([seconds(11)], steps, 1) == []


def test_a_training_that_came_to_no_step_has_no_time_of_one(tmp_path: Path) -> None:
    written(tmp_path, 1, "start 0 0")
    steps = Steps.read(tmp_path)
    assert math.isnan(steps.step_seconds)
    assert losses([1], steps, 1) == []
    assert steps.accuracy is None


def test_the_killer_kills_what_has_written(tmp_path: Path) -> None:
    sleeper = subprocess.Popen(["sleep", "600"])
    (tmp_path / f"{sleeper.pid}").touch()
    other = subprocess.Popen(["sleep", "600"])
    try:
        with Killer(0.1, tmp_path) as killer:
            os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
            before = time.monotonic_ns()
            time.sleep(0.35)  # what is tried is that nothing happens in three intervals
        assert len(killer.kills) == 1  # a zombie is not killed again
        assert killer.kills[0] < before
        assert sleeper.wait(60) == -signal.SIGKILL
        assert other.poll() is None
        with Killer(0, tmp_path) as killer:
            pass
        assert killer.kills == []
    finally:
        other.kill()
        other.wait()


def test_the_memory_is_that_of_the_marked_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.failures.watching.SAMPLE_SECONDS", 0.05)
    mib = 64
    script = f"data = b'x' * ({mib} << 20); print(flush=True); input()"
    with MemoryOverTime() as memory:
        marked = subprocess.Popen(
            [sys.executable, "-c", script],
            env={**os.environ, **memory.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert marked.stdout
        marked.stdout.readline()
        seen, deadline = len(memory.samples), time.monotonic() + 60
        while len(memory.samples) < seen + 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        marked.communicate(b"\n")
    assert mib <= max(size for _, size in memory.samples) < mib + 60
    times = [second for second, _ in memory.samples]
    assert times == sorted(times)


def test_elastic_has_a_host_for_every_rank_and_failure() -> None:
    names = host_names()
    assert len(set(names)) == 27
    script = "import socket, sys; print({socket.gethostbyname(name) for name in sys.argv[1:]})"
    command = [sys.executable, "-c", script, *names]
    found = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert found.strip() == "{'127.0.0.1'}"
