"""The command and the environment that a worker is started with."""

import json
import os
import subprocess
import sys

import pytest

from hvd_ft import libraries
from hvd_ft.errors import HvdFtError
from hvd_ft.job.placement import Nodes
from hvd_ft.job.worker_environment import (
    check_command,
    incarnation_environment,
    worker_environment,
)
from hvd_ft.mpi.environment import mpi_environment, mpiexec_command
from hvd_ft.mpi.variables import without_launcher


@pytest.mark.parametrize(
    "command",
    [
        ["python3", "-c", "code"],
        ["python3", "-m", "module"],
        ["python3", "-W", "error", "-u", "-"],
        ["sh", "nothere.py"],
    ],
)
def test_commands_without_a_script_to_check(command: list[str]) -> None:
    check_command(command)


def test_a_script_is_found_behind_options() -> None:
    with pytest.raises(HvdFtError, match=r"script nothere\.py"):
        check_command([sys.executable, "-u", "-X", "dev", "nothere.py", "-c"])


def test_nothing_that_mpirun_adds_comes_to_a_worker() -> None:
    before = {**os.environ, **mpi_environment()}
    show = [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
    command = [*mpiexec_command(1, before), *show]
    shown = subprocess.run(command, env=before, check=True, capture_output=True, text=True)
    added = {k: v for k, v in json.loads(shown.stdout).items() if k not in before}
    assert {"PMI_RANK", "HYDRA_LAUNCH_TYPE", "MPI_LOCALRANKID"} <= set(added)
    bare = worker_environment({}, 0, Nodes((0, 1)), "j", "/d")
    env = worker_environment(without_launcher(added), 0, Nodes((0, 1)), "j", "/d")
    assert set(env) - set(bare) <= {"GFORTRAN_UNBUFFERED_PRECONNECTED"}


def test_the_workers_environment() -> None:
    environ = {"PMI_RANK": "1", "I_MPI_ROOT": "/x", "HYDRA_BSTRAP_A": "z", "MPL": "kept"}
    users = {"HYDRA_FULL_ERROR": "1", "MPI_DIR": "/m", "MPICC": "cc", "PMI_PATH": "/p"}
    # Those of a job that the worker may start itself are not ours.
    ours = {"HOROVOD_FT_LAUNCHER": "a", "HOROVOD_FT_MEMBERS": "b", "HOROVOD_FT_ACT_LEASE": "3"}
    env = worker_environment(
        without_launcher({**environ, **users, **ours, "HOROVOD_CYCLE_TIME": "2"}),
        rank=3,
        nodes=Nodes((0, 2, 5)),
        job="j",
        directory="/d",
    )
    assert not set(env) & {"PMI_RANK", "I_MPI_ROOT", "HYDRA_BSTRAP_A", *ours}
    assert users.items() <= env.items()
    assert (env["MPL"], env["HOROVOD_CYCLE_TIME"]) == ("kept", "2")
    assert (env["HOROVOD_RANK"], env["HOROVOD_SIZE"]) == ("3", "5")
    assert (env["HOROVOD_LOCAL_RANK"], env["HOROVOD_LOCAL_SIZE"]) == ("1", "3")
    assert (env["HOROVOD_CROSS_RANK"], env["HOROVOD_CROSS_SIZE"]) == ("1", "2")
    assert env["HOROVOD_FT_HOMOGENEOUS"] == "0"
    assert env["HOROVOD_FT_LIBRARY"] == libraries.library_path()
    env = worker_environment({}, rank=4, nodes=Nodes((0, 2, 5)), job="j", directory="/d")
    assert (env["HOROVOD_CROSS_RANK"], env["HOROVOD_CROSS_SIZE"]) == ("0", "1")


@pytest.mark.parametrize(
    ("asked", "files"),
    [
        ("t.json", [None, "t.1.json", "t.2.json"]),
        ("/logs.d/timeline", [None, "/logs.d/timeline.1", "/logs.d/timeline.2"]),
        ("DYNAMIC", [None, None, None]),  # the script names the file
        ("", [None, None, None]),
    ],
)
def test_each_incarnation_writes_a_timeline_of_its_own(asked: str, files: list[str | None]) -> None:
    for incarnation, file in enumerate(files):
        own = incarnation_environment({"HOROVOD_TIMELINE": asked}, incarnation)
        assert own.get("HOROVOD_TIMELINE") == file
        assert own["HOROVOD_FT_INCARNATION"] == str(incarnation)
    assert "HOROVOD_TIMELINE" not in incarnation_environment({}, 1)
