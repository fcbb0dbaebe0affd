"""The step for shims; a script stands for srun."""

import os
import time
from pathlib import Path

import pytest

from hvd_ft.launcher.job import starts_by_slurm
from hvd_ft.launcher.shim_step import ShimStep, step_command
from hvd_ft.system.event_loop import EventLoop

TIMEOUT_SECONDS = 30.0


def begin(folder: Path, script: str, hosts: list[str]) -> tuple[EventLoop, ShimStep]:
    (folder / "srun").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "srun").chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    loop = EventLoop()
    return loop, ShimStep(loop, hosts, "job", environment)


def follow(loop: EventLoop, step: ShimStep) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while step.runs and not step.listens:
        assert time.monotonic() < deadline
        loop.run_once(TIMEOUT_SECONDS)


def test_it_has_a_process_on_each_host() -> None:
    command = " ".join(step_command(["n0", "n1"], "name"))
    assert command.startswith("srun --overlap --no-kill ")
    assert "--nodes 2 --ntasks 2 --ntasks-per-node=1 --nodelist n0,n1 " in command
    assert command.endswith(" -m hvd_ft.shim.starter name")


def test_it_listens_when_all_of_its_processes_do(tmp_path: Path) -> None:
    script = 'printf "a library\\nlistens n0\\nlis"; read go < fifo; echo "tens n1"; exec cat'
    os.mkfifo(tmp_path / "fifo")
    loop, step = begin(tmp_path, f"cd {tmp_path}; {script}", ["n0", "n1"])
    loop.run_once(TIMEOUT_SECONDS)
    assert step.runs
    assert not step.listens
    (tmp_path / "fifo").write_text("go\n")
    follow(loop, step)
    assert step.listens
    step.close()  # the end of its standard input ends it
    while step.runs:
        loop.run_once(TIMEOUT_SECONDS)
    assert not step.listens
    step.end()


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'srun: error: no such node' >&2; exit 1", "srun: error: no such node"),
        ("for i in 1 2 3 4 5; do echo $i >&2; done", "3; 4; 5"),
        ("exec sleep 600 >&-", "2 of its processes have not begun in time"),
    ],
)
def test_why_it_does_not_listen(tmp_path: Path, script: str, why: str) -> None:
    loop, step = begin(tmp_path, script, ["n0", "n1"])
    follow(loop, step)
    assert not step.listens
    assert step.why_not() == why
    step.end()


def test_there_is_no_srun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    step = ShimStep(EventLoop(), ["n0"], "job", {"PATH": str(tmp_path)})
    assert not step.runs
    assert step.why_not() == "srun: No such file or directory"
    step.end()


def test_srun_is_ended_with_the_launcher(tmp_path: Path) -> None:
    loop, step = begin(tmp_path, "echo listens n0; trap '' TERM; exec sleep 600", ["n0"])
    follow(loop, step)
    step.end()
    assert not step.listens


def test_only_slurm_has_steps() -> None:
    assert starts_by_slurm({"I_MPI_HYDRA_BOOTSTRAP": "slurm"})
    assert not starts_by_slurm({"I_MPI_HYDRA_BOOTSTRAP": "ssh"})
    assert not starts_by_slurm({})
