"""A job on several hosts, seen from each of them, and from its status page."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import HANG_SECONDS, ROOT, Cluster, running_cluster
from test_generations import SUMS
from test_network import Running

SLOW = str(ROOT / "tests" / "jobs" / "scripts" / "slow_script.py")
ENDLESS = [*SUMS, "100000", "40000", "20", "0.05"]
ASK = """\
import json, sys, urllib.error, urllib.request
url, path, body, token = sys.argv[1:]
headers = {"Authorization": "Bearer " + token} if token else {}
data = body.encode() if body else None
try:
    with urllib.request.urlopen(urllib.request.Request(url + path, data, headers)) as answer:
        print(answer.read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def nodes() -> Iterator[Cluster]:
    with running_cluster("-n", "2") as cluster:
        yield cluster


def begin(cluster: Cluster, *job: str) -> Running:
    """Starts a job on n0."""
    program = [sys.executable, "-m", "hvd_ft.cli"]
    process = subprocess.Popen(
        [*program, "cluster", "run", "--name", cluster.name, "--", *program, "run", *job],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    running = Running(process)
    threading.Thread(target=running.listen, daemon=True).start()
    return running


def stop(running: Running) -> str:
    """Ends a job; returns what it has said."""
    running.process.send_signal(signal.SIGTERM)
    code, _, err = running.end()
    assert code == 143, err
    return err


def until(look: Callable[[], Any], holds: Callable[[Any], bool]) -> Any:
    """Looks until what is seen is as it should be; nothing tells of it."""
    end = time.monotonic() + HANG_SECONDS
    while not holds(found := look()):
        assert time.monotonic() < end, found
        time.sleep(0.2)
    return found


def status(cluster: Cluster, node: str) -> Any:
    """Returns what `hvdft status --json` prints on a node; None before the job has begun."""
    command = shlex.join([sys.executable, "-m", "hvd_ft.cli", "status", "--json"])
    text = cluster.sh(node, f"{command} 2>&1 || :")
    return json.loads(text) if text.startswith("{") else None


@pytest.mark.shows(later=True)
def test_each_host_knows_the_status_of_all_ranks(nodes: Cluster) -> None:
    running = begin(nodes, "-np", "3", "-H", "n0:1,n1:2", *ENDLESS)
    for node, own in (("n0", [0]), ("n1", [1, 2])):
        found = until(
            lambda node=node: status(nodes, node),
            lambda found: (
                found is not None
                and found["step"] > 1
                and all(rank["steps_per_second"] for rank in found["ranks"])
            ),
        )
        ranks = found["ranks"]
        assert [rank["rank"] for rank in ranks if rank["here"]] == own
        assert [rank["host"] for rank in ranks] == ["n0", "n1", "n1"]
        assert all(rank["pid"] and rank["step"] > 0 for rank in ranks)
        assert (found["host"], found["rank_0_here"]) == (node, node == "n0")
        assert found["news_seconds"] < HANG_SECONDS
        assert [member["host"] for member in found["members"]] == ["n0", "n1"]
    stop(running)


@pytest.mark.shows(later=True)
def test_the_page_kills_ranks_of_all_hosts_and_shows_the_links(nodes: Cluster) -> None:
    running = begin(nodes, "-np", "3", "-H", "n0:1,n1:2", "--status-port", "0", *ENDLESS)
    running.await_line("status page: ")
    line = next(line for line in running.err if "status page: " in line)
    url = re.search(r"http://\S+", line)
    path = re.search(r"is in ([^)]+)\)", line)
    assert url and path
    token = nodes.sh("n0", f"cat {path[1]}").strip()

    def ask(path: str, body: str = "", token: str = "") -> str:
        words = [sys.executable, "-c", ASK, url[0], path, body, token]
        return nodes.sh("n0", shlex.join(words)).strip()

    def ranks() -> Any:
        state = json.loads(ask("state.json"))["status"]
        return state["ranks"] if state else []

    until(ranks, lambda found: bool(found) and all(rank["step"] > 2 for rank in found))
    for rank in (2, 0):
        body = json.dumps({"rank": rank})
        assert ask("kill", body).startswith("401 ")
        assert ask("kill", body, token) == f"the worker of rank {rank} was killed"
        until(
            ranks,
            lambda found, rank=rank: (
                found[rank]["incarnation"] == 1 and found[rank]["state"] == "running"
            ),
        )
    assert [rank["incarnation"] for rank in ranks()] == [1, 0, 1]
    links = until(
        lambda: json.loads(ask("state.json"))["links"],
        lambda found: any(link["kind"] == "ring" and link["transfers"] > 0 for link in found),
    )
    ends = {(link["source"], link["dest"]) for link in links if link["kind"] == "ring"}
    assert ends == {("n0", "n1"), ("n1", "n0")}
    assert {link["state"] for link in links} == {"open"}
    assert 'hvdft_link_transfers_total{dest="n1"' in ask("metrics")
    err = stop(running)
    assert err.count("as somebody has asked on the status page") == 2


@pytest.mark.long
def test_a_slow_host_is_named_as_a_host(nodes: Cluster) -> None:
    slow = [word for rank in (2, 3) for word in ("--inject", f"rank={rank},slow=2")]
    script = [sys.executable, SLOW, "--steps", "100000", "--ms", "100"]
    running = begin(nodes, "-np", "4", "-H", "n0:2,n1:2", *slow, *script)
    running.await_line(" is slow: ")
    err = stop(running)
    (named,) = [line for line in err.splitlines() if " is slow: " in line]
    assert "host n1 (ranks 2, 3) is slow: last in " in named
