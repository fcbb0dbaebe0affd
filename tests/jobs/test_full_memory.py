"""Jobs whose shared memory is full go on as long as they need no more of it."""

import os
import subprocess
import sys
import threading

import pytest
from conftest import Cluster
from test_generations import SUMS
from test_network import Running, digest

OPS, SIZE = 60, 4096
NODES = ("n0", "n1")
FILL = "mount -o remount,size=128m /dev/shm; dd if=/dev/zero of=/dev/shm/filler bs=4k || :"


@pytest.mark.shows
def test_agents_die_twice_where_shared_memory_is_full(cluster: Cluster) -> None:
    # Nothing comes of the first drill but that it is told.
    drills = ["rank=0,step=10,raise", "agent=1,op=30", "agent=0,op=50"]
    inject = [word for drill in drills for word in ("--inject", drill)]
    hosts = ",".join(f"{node}:1" for node in NODES)
    job = ["run", "-np", "2", "-H", hosts, *inject, *SUMS, str(OPS), str(SIZE), "1", "0.1"]
    program = [sys.executable, "-m", "hvd_ft.cli"]
    process = subprocess.Popen(
        [*program, "cluster", "run", "--name", cluster.name, "--", *program, *job],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    running = Running(process)
    threading.Thread(target=running.listen, daemon=True).start()
    running.await_line("hvdft: drill")
    try:
        for node in NODES:
            cluster.sh(node, FILL)
        code, out, err = running.end()
    finally:
        for node in NODES:
            cluster.sh(node, "rm -f /dev/shm/filler; mount -o remount,size=50% /dev/shm")
    assert code == 0, err
    assert "starting generation 2 of its agents" in err, err
    lines = {f"SUMS {rank} 0 {digest(OPS, SIZE, 2)}" for rank in range(2)}
    assert set(out.splitlines()) == lines, err
