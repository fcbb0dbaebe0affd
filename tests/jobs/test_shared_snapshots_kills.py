"""Ranks and agents die at every point of a shared snapshot, on one node and on three.

`test_shared_snapshots.py` has ranks of one node; tests/core/stepped kills at every store.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import SCRIPTS, Cluster, Ended, Once, RunHvdft

SCRIPT = [sys.executable, str(SCRIPTS / "shared_script.py")]
RANKS = 3
PLACEMENT, ON_NODES = 5, "n0:2,n1:2,n2:1"  # several nodes with ranks that share
ENVIRONMENT = {
    "HOROVOD_FUSION_THRESHOLD": "0",  # so each run has the same ops
    "HOROVOD_FT_MAX_FAILURES": "20",
}
# Steps of the second loop at which there is a snapshot; the first one is shorter. Ops would not do:
# marks are ops too, and come when a rank can take them.
AT = range(20, 53, 4)


Start = Callable[[list[str]], Ended]


def results(ended: Ended, size: int, drills: list[str]) -> list[str]:
    """Returns what each rank has found; all drills have struck."""
    assert ended.code == 0, ended.err
    struck = set(re.findall(r"^hvdft: drill: (.*)$", ended.err, re.MULTILINE))
    silent = {drill for drill in drills if drill.startswith("mpirun")}  # it takes the line with it
    assert struck | silent == set(drills), ended.err
    assert ended.err.count("mpirun ended (signal 9, SIGKILL)") == len(silent), ended.err
    found = sorted(set(re.findall(r"^RESULT \d+ \w+$", ended.out, re.MULTILINE)))
    assert len(found) == size, ended.out
    return found


def undisturbed(start: Start, once: Once, size: int, folder: str) -> list[str]:
    """Returns the results of a job without deaths."""

    def make(folder: Path) -> None:
        (folder / "results").write_text("\n".join(results(start([]), size, [])))

    return (once(folder, make) / "results").read_text().splitlines()


def flags(drills: list[str]) -> list[str]:
    return [word for drill in drills for word in ("--inject", drill)]


@pytest.fixture
def on_one_node(run_hvdft: RunHvdft) -> Start:
    command = ["run", "-np", str(RANKS)]
    return lambda flags: run_hvdft([*command, *flags, *SCRIPT], env=ENVIRONMENT)


@pytest.fixture
def on_three_nodes(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Start:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    command = [sys.executable, "-m", "hvd_ft.cli", "run", "-np", str(PLACEMENT), "-H", ON_NODES]
    return lambda flags: cluster.hvdft("run", "--", *command, "--no-live", *flags, *SCRIPT)


def agents_die() -> list[str]:
    """Drills of agents and of mpirun, at every point of a snapshot."""
    return [
        "agent=0,point=mark",
        "agent=1,point=fingerprints",  # of the same snapshot
        f"mpirun,point=snapshot_drop,step={AT[1]}",
        f"agent=2,point=snapshot_write,step={AT[3]}",
        f"mpirun,rank=1,point=snapshot_delivered,step={AT[5]}",
        f"agent=0,point=snapshot_published,step={AT[7]}",
        f"rank=2,point=snapshot_published,step={AT[7]}",
    ]


def test_agents_die_on_one_node(on_one_node: Start, once: Once) -> None:
    expected = undisturbed(on_one_node, once, RANKS, "shared-on-one")
    drills = agents_die()
    assert results(on_one_node(flags(drills)), RANKS, drills) == expected


def test_agents_die_on_three_nodes(on_three_nodes: Start, once: Once) -> None:
    expected = undisturbed(on_three_nodes, once, PLACEMENT, "shared-on-three")
    drills = agents_die()
    assert results(on_three_nodes(flags(drills)), PLACEMENT, drills) == expected


def test_ranks_die_on_three_nodes(on_three_nodes: Start, once: Once) -> None:
    """One by one at every point, then several of different nodes at once."""
    expected = undisturbed(on_three_nodes, once, PLACEMENT, "shared-on-three")
    drills = [
        "rank=0,point=mark",
        "rank=2,point=fingerprints",
        f"rank=1,point=snapshot_drop,step={AT[0]}",
        f"rank=3,point=snapshot_write,step={AT[1]}",
        f"rank=4,point=snapshot_delivered,step={AT[2]}",
        f"rank=0,incarnation=1,point=snapshot_published,step={AT[3]}",
        # On all nodes, one of those that share left.
        f"rank=1,incarnation=1,point=snapshot_delivered,step={AT[4]}",
        f"rank=2,incarnation=1,point=snapshot_write,step={AT[4]}",
        f"rank=4,incarnation=1,point=snapshot_drop,step={AT[4]}",
        # All of a node, and rank 0.
        f"rank=0,incarnation=2,point=snapshot_write,step={AT[6]}",
        f"rank=2,incarnation=2,point=snapshot_delivered,step={AT[6]}",
        f"rank=3,incarnation=1,point=snapshot_published,step={AT[6]}",
        # All.
        *(f"rank={rank},incarnation={life},step=50" for rank, life in enumerate((3, 2, 3, 2, 2))),
    ]
    assert results(on_three_nodes(flags(drills)), PLACEMENT, drills) == expected
