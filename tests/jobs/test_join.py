"""hvd.join gives on ft what it gives on MPI, also when ranks die before, in and after it."""

import os
import sys

import pytest
from conftest import SCRIPTS, RunHvdft

from hvd_ft.mpi.environment import mpi_environment

SCRIPT = str(SCRIPTS / "join_script.py")
RANKS = "3"
# Rank 0 has joined and gives zeros; rank 1 is the last to join; rank 2 trains on alone; rank 1 dies
# in the op that ends a join.
DRILLS = ("rank=0,point=copy_in,op=7", "rank=1,op=9", "rank=2,op=22", "rank=1,incarnation=1,op=25")


@pytest.mark.shows(later=True)
def test_joined_ranks_that_die_give_zeros_again(run_hvdft: RunHvdft) -> None:
    command = [sys.executable, SCRIPT]
    environment = {**os.environ, **mpi_environment()}
    mpi = run_hvdft(["-n", RANKS, *command], env=environment, program=["mpirun"])
    assert mpi.code == 0, mpi.err
    assert mpi.out.count("[1, 2]") == int(RANKS), mpi.out
    flags = [flag for drill in DRILLS for flag in ("--inject", drill)]
    ended = run_hvdft(["run", "-np", RANKS, *flags, *command])
    assert ended.code == 0, ended.err
    assert ended.err.count("hvdft: drill: ") == len(DRILLS), ended.err
    assert sorted(ended.out.splitlines()) == sorted(mpi.out.splitlines())
