"""Small ops between nodes, which are gathered: real processes that die, and one that is slow."""

import re
import sys
from collections.abc import Iterator

import pytest
from conftest import SCRIPTS, Cluster, Ended, RunHvdft, running_cluster

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


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three nodes."""
    with running_cluster() as running:
        yield running


@pytest.mark.long
def test_a_link_that_has_delivered_is_not_broken_while_another_is_waited_for(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROVOD_FT_LEASE_SECONDS", "6")  # a link's limit is half as long again
    flags = ["run", "-np", "3", "-H", "n0:1,n1:1,n2:1", "--inject", "rank=1,op=20,point=copy_in"]
    hvdft = [sys.executable, "-m", "hvd_ft.cli", *flags]
    ended = cluster.hvdft("run", "--", *hvdft, *SLOW, *SUMS, "30", BYTES, "5")
    assert ended.code == 0, ended.err
    assert len(re.findall(r"SUMS \d+ \d+ \w+", ended.out)) == 3
    assert "rank 1 is back" in ended.err
    assert ended.err.count("; starting generation") == 0, ended.err
