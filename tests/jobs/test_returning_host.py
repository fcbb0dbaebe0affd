"""A host that was replaced comes back with what it had."""

import re

import pytest
from conftest import Cluster
from test_lost_hosts import OPS, SIZE, expect_clear, nodes, start
from test_network import digest, disturb

__all__ = ["nodes"]  # the fixture
pytestmark = pytest.mark.timeout(300)


def test_a_host_that_comes_back_is_out_and_then_a_spare_host(nodes: Cluster) -> None:
    """With its old arenas: what it still has ends, and it takes the next place afresh."""
    running = start(nodes, "n0:1,n1:1,n2:1", "n3:1")
    disturb(nodes, "cut", node="n1")
    running.await_line("host n1 is lost; its rank 1 continues on n3 (epoch 1)")
    states = nodes.sh("n1", "ps -eo stat,args | grep '[s]ums_script'").split()
    assert states[0].startswith("T"), states
    disturb(nodes, "heal", node="n1")
    running.await_line("host n1 is back and has lost its place: it is a spare host from now on")
    expect_clear(nodes, "n1")
    running.await_line("rank 1 is back")
    disturb(nodes, "kill", node="n3")
    running.await_line("host n3 is lost; its rank 1 continues on n1 (epoch 2)")
    code, out, err = running.end()
    assert code == 0, err
    found = re.findall(r"SUMS (\d+) (\d+) (\w+)", out)
    lives = {0: "0", 1: "2", 2: "0"}
    assert sorted(found) == [(str(r), lives[r], digest(OPS, SIZE, 3)) for r in range(3)], err
    expect_clear(nodes, "n0", "n1", "n2")
