"""Jobs of Lightning and Accelerate whose ranks are killed at every named point, or lose a host."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import SCRIPTS, Cluster, Once, RunHvdft, running_cluster
from test_lost_hosts import start
from test_network import disturb
from test_torch_kills import DRILLS, PYTHON, train
from test_torch_nodes import HOSTS, on_nodes, undisturbed
from test_torch_nodes import train as train_on_nodes

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]
CLIENTS = ["lightning", "accelerate"]


def work(client: str) -> list[str]:
    """Returns the script; Lightning's takes a folder besides."""
    return [f"torch_{client}_script.py", "plain", "snapshots"]


@pytest.mark.parametrize("name", DRILLS)
@pytest.mark.parametrize("client", CLIENTS)
def test_ranks_killed_at_every_point_change_nothing(
    run_hvdft: RunHvdft, once: Once, tmp_path: Path, client: str, name: str
) -> None:
    name_of_script, *words = work(client)
    script = [*PYTHON, str(SCRIPTS / name_of_script), *words]

    def whole(folder: Path) -> None:
        found = train(run_hvdft, [*script, str(folder / "whole")])
        (folder / "results").write_text(repr(found))

    expected = (once(f"torch-undisturbed-{client}", whole) / "results").read_text()
    found = train(run_hvdft, [*script, str(tmp_path / "killed")], DRILLS[name])
    assert repr(found) == expected


@pytest.mark.parametrize("name", DRILLS)
@pytest.mark.parametrize("client", CLIENTS)
def test_ranks_killed_at_every_point_of_three_nodes_change_nothing(
    cluster: Cluster, once: Once, tmp_path: Path, client: str, name: str
) -> None:
    drills = on_nodes(DRILLS[name])
    found, _ = train_on_nodes(cluster, [*work(client), str(tmp_path)], drills)
    assert repr(found) == undisturbed(cluster, once, client, work(client))


@pytest.fixture
def nodes() -> Iterator[Cluster]:
    with running_cluster("-n", "4") as running:
        yield running


@pytest.mark.parametrize("client", CLIENTS)
def test_a_spare_host_takes_the_place_of_a_lost_one(
    nodes: Cluster, once: Once, tmp_path: Path, client: str
) -> None:
    expected = undisturbed(nodes, once, client, work(client))  # while all nodes are up
    script, *words = work(client)
    command = [*PYTHON, str(SCRIPTS / script), *words, str(tmp_path)]
    killed = tmp_path / "killed"  # the job does not end before
    running = start(nodes, HOSTS, "n3:3", work=command, env={"AWAIT": str(killed)})
    running.await_line("waiting for the test after 8 steps")
    disturb(nodes, "kill", node="n1")
    killed.touch()
    code, out, err = running.end()
    assert code == 0, err
    assert "2 continue" in err, err
    found = sorted(re.findall(r"^RESULT (\d) \d (\S+) (\S+)$", out, re.MULTILINE))
    assert repr(found) == expected
