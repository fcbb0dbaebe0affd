"""The flat topology: every rank is a member of the ring, with MPI between any two."""

from pathlib import Path

import pytest
from conftest import RunHvdft
from test_recovery import train

from hvd_ft.errors import HvdFtError
from hvd_ft.nodes import Nodes
from hvd_ft.settings import Settings

FLAT = ("--topology", "flat")


@pytest.mark.timeout(300)
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


def test_every_rank_is_a_node() -> None:
    assert Nodes((0, 2, 3)).apart() == Nodes((0, 1, 2, 3))


def test_a_topology_that_is_not_known(run_hvdft: RunHvdft) -> None:
    with pytest.raises(HvdFtError, match="HOROVOD_FT_TOPOLOGY='star' is not allowed: give hier"):
        Settings.from_env({"HOROVOD_FT_TOPOLOGY": "star"})
    ended = run_hvdft(["run", "-np", "2", "--topology", "star", "true"])
    assert ended.code == 2
    assert "invalid choice: 'star'" in ended.err
