"""Process sets give on ft what they give on MPI: on one node with ranks that die, and on two."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import SCRIPTS, Cluster, Once, RunHvdft

from hvd_ft.mpi.environment import mpi_environment

SCRIPT = str(SCRIPTS / "process_sets_script.py")
LOOPS = str(SCRIPTS / "process_sets_loop_script.py")
RANKS = "3"
# An op of a set with the rank, of one without it, one that adds a set; the coordinator in a set
# that it is not in.
DRILLS = ("rank=2,point=copy_out,op=9", "rank=0,op=24", "rank=1,op=60")


@pytest.fixture
def expected(run_hvdft: RunHvdft, once: Once) -> list[str]:
    """What the ranks print on MPI."""

    def make(folder: Path) -> None:
        environment = {**os.environ, **mpi_environment()}
        command = ["-n", RANKS, sys.executable, SCRIPT]
        mpi = run_hvdft(command, env=environment, program=["mpirun"])
        assert mpi.code == 0, mpi.err
        (folder / "out").write_text(mpi.out)

    return sorted((once("process-sets-on-mpi", make) / "out").read_text().splitlines())


@pytest.mark.shows(later=True)
def test_ranks_that_die_are_replayed_in_their_sets(
    run_hvdft: RunHvdft, expected: list[str]
) -> None:
    command = [sys.executable, SCRIPT]
    flags = [flag for drill in DRILLS for flag in ("--inject", drill)]
    ended = run_hvdft(["run", "-np", RANKS, *flags, *command])
    assert ended.code == 0, ended.err
    assert ended.err.count("hvdft: drill: ") == len(DRILLS), ended.err
    assert sorted(ended.out.splitlines()) == expected


def test_a_node_without_a_set_s_ranks_adds_nothing(cluster: Cluster, expected: list[str]) -> None:
    hvdft = [sys.executable, "-m", "hvd_ft.cli", "run", "-np", RANKS, "-H", "n0:2,n1:1"]
    ended = cluster.hvdft("run", "--", *hvdft, sys.executable, SCRIPT)
    assert ended.code == 0, ended.err
    assert sorted(ended.out.splitlines()) == expected


def trained() -> set[str]:
    """Returns what `process_sets_loop_script.py` is to print."""
    groups, start, lines = ((0, 2), (1,)), np.arange(40_000), set()
    for loop in range(2):
        ends = []
        for group in groups:
            weights = start
            for step in range(30):
                weights = sum((3 * weights + rank + step) % 17 for rank in group)
            ends.append(weights)
        start = ends[0] * 2 + ends[1]
        for group, end in zip(groups, ends, strict=True):
            lines |= {f"rank {rank}: {loop} {end.sum()} {start.sum()}" for rank in group}
    return lines


def test_snapshots_know_nothing_of_others_ops(run_hvdft: RunHvdft) -> None:
    flags = ["--inject", "rank=1,step=17", "--inject", "rank=2,op=90"]
    ended = run_hvdft(["run", "-np", RANKS, *flags, sys.executable, LOOPS])
    assert ended.code == 0, ended.err
    assert ended.err.count("hvdft: drill: ") == 2, ended.err
    assert set(ended.out.splitlines()) == trained()  # rank 2 prints its first line again


DIFFERENT = """\
import hvd_ft.tensorflow as hvd

hvd.init(process_sets="dynamic")
hvd.add_process_set([0] if hvd.rank() == 0 else [1])
"""


def test_ranks_that_add_different_sets_are_told(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    script = tmp_path / "different.py"
    script.write_text(DIFFERENT)
    ended = run_hvdft(["run", "-np", "2", sys.executable, str(script)])
    assert ended.code == 1, ended
    told = [f"rank {r} is to add process set [{r}], but rank {1 - r}" for r in (0, 1)]
    assert any(line in ended.err for line in told)  # of who sees it first


def test_nobody_waits_for_a_quiet_rank_that_has_died(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    """It asks for nothing after its restart, and the others' ops have to pass it nevertheless."""
    script = str(SCRIPTS / "quiet_rank_script.py")
    ended = run_hvdft(["run", "-np", RANKS, sys.executable, script, str(tmp_path)])
    assert ended.code == 0, ended.err
    assert sorted(ended.out.splitlines()) == [f"END {rank} 3.0" for rank in range(3)]
    assert "rank 2 died" in ended.err
