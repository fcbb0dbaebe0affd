"""Small ops between nodes, which are gathered: real processes that die, and one that is slow."""

import re
import sys

import pytest
from conftest import SCRIPTS, Ended, RunHvdft

SUMS = [sys.executable, str(SCRIPTS / "sums_script.py")]
BYTES = "1000"
pytestmark = pytest.mark.timeout(400)


def run_nodes(run_hvdft: RunHvdft, nodes: int, *arguments: str, **env: str) -> Ended:
    """Runs a job of one rank a node on this host; all its ranks find the same right sums."""
    flags = ["run", "-np", str(nodes), "--topology", "flat"]
    settings = {f"HOROVOD_FT_{name}": value for name, value in env.items()}
    ended = run_hvdft([*flags, *arguments], timeout=300, env=settings)
    assert ended.code == 0, ended
    found = re.findall(r"SUMS (\d+) \d+ (\w+)", ended.out)
    assert sorted(int(rank) for rank, _ in found) == list(range(nodes)), ended
    assert len({digest for _, digest in found}) == 1
    return ended


# Odd and even numbers; where a thread does everything, and where each has its own.
@pytest.mark.parametrize(
    ("nodes", "endpoints"), [(5, "1"), pytest.param(4, "3", marks=pytest.mark.long)]
)
def test_agents_die_in_small_ops(run_hvdft: RunHvdft, nodes: int, endpoints: str) -> None:
    drills = ["agent=3,step=40", "rank=1,step=60", "mpirun,step=80", "agent=0,step=100"]
    inject = [word for drill in drills for word in ("--inject", drill)]
    ended = run_nodes(run_hvdft, nodes, *inject, *SUMS, "150", BYTES, "25", ENDPOINTS=endpoints)
    assert ended.err.count("; starting generation") == 3


# The worker that comes back is slow, longer than the links' limit.
SLOW = ["sh", "-c", 'test "$HOROVOD_FT_INCARNATION" = 0 || sleep 15; exec "$@"', "sh"]


@pytest.mark.long
def test_a_link_that_has_delivered_is_not_broken_while_another_is_waited_for(
    run_hvdft: RunHvdft,
) -> None:
    limits = {"SUSPECT_SECONDS": "2", "LINK_TIMEOUT_SECONDS": "5"}
    drill = ["--inject", "rank=1,op=20,point=copy_in"]
    ended = run_nodes(run_hvdft, 4, *drill, *SLOW, *SUMS, "30", BYTES, "5", **limits)
    assert "rank 1 is back" in ended.err
    assert ended.err.count("; starting generation") == 0
