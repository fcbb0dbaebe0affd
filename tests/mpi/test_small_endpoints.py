"""MPI's memory in an agent of a job on several hosts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hvd_ft.mpi.environment import mpi_environment, mpiexec_command, small_endpoints

MEMORY = """\
import mpi4py
mpi4py.rc.thread_level = "multiple"
from mpi4py import MPI
import psutil
MPI.COMM_WORLD.allgather("x" * 100000)
total = MPI.COMM_WORLD.allreduce(psutil.Process().memory_full_info().pss)
if MPI.COMM_WORLD.rank == 0:
    print(total / MPI.COMM_WORLD.size / 2**20)
"""


def test_they_are_for_tcp_on_several_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    small = small_endpoints({"FI_PROVIDER": "tcp"})
    for name in (*small, "FI_PROVIDER"):
        monkeypatch.delenv(name, raising=False)
    assert small and small.items() <= mpi_environment(one_host=False).items()
    assert not small.keys() & mpi_environment(one_host=True).keys()
    assert small_endpoints({}) == {}
    assert small_endpoints({"FI_PROVIDER": "verbs"}) == {}


def test_what_the_user_sets_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    [name, *others] = small_endpoints({"FI_PROVIDER": "tcp"})
    monkeypatch.setenv(name, "1")
    monkeypatch.delenv("FI_PROVIDER", raising=False)
    environment = mpi_environment(one_host=False)
    assert name not in environment
    assert set(others) <= environment.keys()


def test_they_are_small(tmp_path: Path) -> None:
    script = tmp_path / "memory.py"
    script.write_text(MEMORY)

    def mib(without: tuple[str, ...] = ()) -> float:
        environment = {**os.environ, **mpi_environment(one_host=False)}
        environment |= {"FI_PROVIDER": "tcp", "I_MPI_FABRICS": "ofi"}
        environment |= {"I_MPI_HYDRA_BOOTSTRAP": "fork"}
        for name in without:
            environment.pop(name, None)
        command = [*mpiexec_command(2, environment), sys.executable, str(script)]
        ended = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=100
        )
        assert ended.returncode == 0, ended.stderr
        return float(ended.stdout)

    names = tuple(small_endpoints({"FI_PROVIDER": "tcp"}))
    small = mib()
    assert small < 30
    for name in names:  # each of them is needed
        assert small + 10 < mib(without=(name,)), name
