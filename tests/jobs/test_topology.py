"""The flat topology: every rank is a member of the ring, with MPI between any two."""

import re
import sys
from pathlib import Path

import pytest
from conftest import RunHvdft
from test_recovery import train

from hvd_ft.errors import HvdFtError
from hvd_ft.job.placement import Nodes
from hvd_ft.job.settings import Settings

FLAT = ("--topology", "flat")


@pytest.mark.shows(later=True)
def test_ranks_of_one_host_in_a_ring(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    undisturbed = train(run_hvdft, tmp_path, "keras", flags=FLAT).results
    assert len({result.weights for result in undisturbed.values()}) == 1
    drills = ["rank=1,step=13", "rank=0,point=wait,step=20", "rank=2,point=copy_in,step=20"]
    disturbed = train(run_hvdft, tmp_path, "keras", drills, flags=FLAT).results
    for rank, result in disturbed.items():
        assert result.incarnation == 1
        assert (result.weights, result.statistics) == (
            undisturbed[rank].weights,
            undisturbed[rank].statistics,
        )


SHOW = """\
import subprocess, sys
import hvd_ft.tensorflow as hvd
import tensorflow as tf

hvd.init()
hvd.allreduce(tf.ones([3]), name="first")
hvd.allreduce(tf.ones([1 << 20]), name="second")
hvd.barrier()
if hvd.rank() == 1:
    subprocess.run([sys.executable, "-m", "hvd_ft.cli", "log", "show"], check=True)
hvd.barrier()
"""


def test_the_logs_of_its_edges(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    script = tmp_path / "show.py"
    script.write_text(SHOW)
    ended = run_hvdft(["run", "-np", "3", *FLAT, sys.executable, str(script)])
    assert ended.code == 0, ended.err
    head, _, *edges = [line.strip() for line in ended.out.splitlines()]
    assert head.startswith("op log: 3 ops, of which 3 are held; op 2: barrier")
    begins = [f"node of rank {rank} → {(rank + 1) % 3}  op " for rank in range(3)]
    assert [edge[: len(begin)] for edge, begin in zip(edges, begins, strict=True)] == begins
    # The barrier may have been too early.
    assert all(len(re.findall("op [23], ", edge)) == 2 for edge in edges), edges


def test_every_rank_is_a_node() -> None:
    assert Nodes((0, 2, 3)).apart() == Nodes((0, 1, 2, 3))


def test_a_topology_that_is_not_known(run_hvdft: RunHvdft) -> None:
    with pytest.raises(HvdFtError, match="HOROVOD_FT_TOPOLOGY='star' is not allowed: give hier"):
        Settings.from_env({"HOROVOD_FT_TOPOLOGY": "star"})
    ended = run_hvdft(["run", "-np", "2", "--topology", "star", "true"])
    assert ended.code == 2
    assert "invalid choice: 'star'" in ended.err
