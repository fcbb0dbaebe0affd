"""Checkpoints of jobs on several nodes, with a common directory and without, and a lost host."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import HANG_SECONDS, SCRIPTS, Cluster, Ended, Once, running_cluster
from test_checkpoints import results
from test_network import Running

from hvd_ft.checkpoint.catalogue import find

SCRIPT = [sys.executable, "-W", "ignore", str(SCRIPTS / "checkpoint_script.py")]
HVDFT = [sys.executable, "-m", "hvd_ft.cli"]
HOSTS = "n0:2,n1:1,n2:1"
RANKS = 4
OFTEN = ["--checkpoint-interval", "0.1"]


@pytest.fixture
def nodes() -> Iterator[Cluster]:
    with running_cluster() as running:
        yield running


def run(cluster: Cluster, *flags: str, hosts: str = HOSTS, ranks: int = RANKS) -> Ended:
    job = [*HVDFT, "run", "--no-live", "-np", str(ranks), "-H", hosts, *flags, *SCRIPT]
    return cluster.hvdft("run", "--", *job)


@pytest.fixture
def undisturbed(cluster: Cluster, once: Once) -> dict[int, str]:
    def make(folder: Path) -> None:
        ended = run(cluster)
        assert ended.code == 0, ended.err
        (folder / "out").write_text(ended.out)

    return results(Ended(0, (once("checkpoints-nodes", make) / "out").read_text(), ""))


@pytest.mark.shows(later=True)
@pytest.mark.parametrize("topology", ["hierarchical", "flat"])
def test_nodes_that_share_a_directory(
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    undisturbed: dict[int, str],
    topology: str,
) -> None:
    folder = tmp_path / "c"
    monkeypatch.setenv("PLAN", "end:1:9")
    monkeypatch.setenv("CHECKPOINTS", str(folder))
    broken = run(cluster, "--checkpoint-dir", str(folder), "--topology", topology, *OFTEN)
    assert broken.code == 7, broken.err
    assert "no checkpoint was written" not in broken.err
    monkeypatch.setenv("PLAN", "")
    found = find(folder)
    assert {each.state for each in found} == {"complete"}, broken.err
    assert found[-1].manifest is not None
    files = found[-1].manifest.files
    assert not {"loop1-node1.safetensors", "loop1-node2.safetensors"} & files.keys(), files
    if topology == "hierarchical":  # the order of sums depends on the placement
        assert results(run(cluster, "--resume", str(folder))) == undisturbed


def test_nodes_with_a_directory_each(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, undisturbed: dict[int, str]
) -> None:
    folder = "/dev/shm/checkpoints"
    monkeypatch.setenv("PLAN", "end:1:9")
    monkeypatch.setenv("CHECKPOINTS", folder)
    broken = run(cluster, "--checkpoint-dir", folder, *OFTEN)
    assert broken.code == 7, broken.err
    monkeypatch.setenv("PLAN", "")
    listed = [
        cluster.sh(node, f"{' '.join(HVDFT)} checkpoint list {folder}; ls {folder}")
        for node in ("n0", "n1", "n2")
    ]
    assert all(f"the share of node {n} of 3" in text for n, text in enumerate(listed)), listed
    assert results(run(cluster, "--resume", folder)) == undisturbed
    moved = run(cluster, "--resume", folder, hosts="n0:1,n1:2,n2:1")
    assert moved.code != 0
    assert "the part of rank 1 is not on the host that the rank is on now" in moved.err
    cluster.sh("n2", f"rm -r {folder}")
    lost = run(cluster, "--resume", folder)
    assert lost.code != 0
    assert "cannot be read" in lost.err


def test_a_lost_host_leaves_what_the_others_have(nodes: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    flags = ["--checkpoint-dir", str(folder), "--checkpoint-interval", "1h"]
    job = [*HVDFT, "run", "--no-live", "-np", str(RANKS), "-H", HOSTS, *flags, *SCRIPT]
    process = subprocess.Popen(
        [*HVDFT, "cluster", "run", "--name", nodes.name, "--", *job],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PLAN": "pause:1:9",
            "HOROVOD_FT_LEASE_SECONDS": "6",
            "HOROVOD_FT_HOST_TIMEOUT_SECONDS": "10",
            "HOROVOD_FT_CHECKPOINT_TIMEOUT_SECONDS": "15",
            "TF_CPP_MIN_LOG_LEVEL": "3",
        },
    )
    running = Running(process)
    threading.Thread(target=running.listen, daemon=True).start()
    for rank in range(RANKS):
        running.await_line(f"PAUSED {rank}")
    assert nodes.hvdft("kill", "n1").code == 0
    code, _, err = running.end()
    assert code == 1, err
    # hvdft run waits for its own host only: another one's writer may still be clearing up.
    deadline = time.monotonic() + HANG_SECONDS
    while nodes.sh("n2", "pgrep -f '[h]vd_ft.checkpointer' || :"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    states = [each.state for each in find(folder)]
    assert len(states) == 1, f"{states}\n{err}"
    [found] = find(folder)
    assert found.manifest is not None
    assert (found.state, found.manifest.step) == ("without rank 2", 8)
    refused = run(nodes, "--resume", str(folder), hosts="n0:2,n2:2")
    assert refused.code != 0
    assert f"there is no complete checkpoint in {folder}" in refused.err
    ended = run(nodes, "--resume", str(found.path), hosts="n0:2,n2:2")
    assert len(results(ended)) == RANKS
    assert "rank 2 begins with the state of another rank" in ended.err
