"""What a cluster is to be, ssh's command line, and environments: all without a cluster."""

import sys

import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.tools.cluster import environment, ssh
from hvd_ft.tools.cluster.cluster_dir import ClusterDir
from hvd_ft.tools.cluster.plan import Plan, shaping


def test_every_node_knows_all_nodes() -> None:
    assert Plan(size=2).hosts_file == "127.0.0.1 localhost\n10.213.0.1 n0\n10.213.0.2 n1\n"


def test_an_unlimited_link_is_left_alone() -> None:
    assert shaping(Plan(), "eth0", delayed=True) == []


def test_a_burst_takes_the_largest_packet_or_a_millisecond() -> None:
    [slow] = shaping(Plan(rate="1.5mbit"), "eth0", delayed=False)
    assert " root handle 10: tbf rate 1500000bit burst 131072 " in slow
    [fast] = shaping(Plan(rate="10gbit"), "eth0", delayed=False)
    assert " rate 10000000000bit burst 1250000 " in fast


def test_a_path_is_delayed_once() -> None:
    plan = Plan(rate="1gbit", delay="5ms")
    delay, rate = shaping(plan, "eth0", delayed=True)
    assert "dev eth0 root handle 1: netem delay 5ms " in delay
    assert "dev eth0 parent 1:1 handle 10: tbf " in rate
    assert shaping(plan, "n0", delayed=False) == shaping(Plan(rate="1gbit"), "n0", delayed=False)


@pytest.mark.parametrize(
    "plan",
    [
        *(Plan(name=name) for name in ("", "-a", "a b", "../a", "a" * 33, "A")),
        *(Plan(size=size) for size in (0, 65)),
        *(
            Plan(rate=rate)
            for rate in ("1", "gbit", "-1gbit", "1gbps", "0mbit", "200gbit", "1 mbit")
        ),
        *(Plan(delay=delay) for delay in ("5", "ms", "0ms", "-5ms", "11s", "5min")),
    ],
    ids=str,
)
def test_what_there_cannot_be(plan: Plan) -> None:
    with pytest.raises(HvdFtError):
        plan.check()


@pytest.mark.parametrize(
    ("line", "call"),
    [
        ("n1 true", ssh.Call("n1", ["true"])),
        ("-x -q n1 a -b c", ssh.Call("n1", ["a", "-b", "c"])),
        ("-xq -o A=b -p 22 root@n1 -i key -o C=d a -b", ssh.Call("n1", ["a", "-b"])),
        ("-p22 -oA=b n1 -- a", ssh.Call("n1", ["a"])),
        ("-n n1 a", ssh.Call("n1", ["a"], input=False)),
        ("n1 -n a", ssh.Call("n1", ["a"], input=False)),
        ("n1", ssh.Call("n1", [])),
    ],
)
def test_what_ssh_is_asked_for(line: str, call: ssh.Call) -> None:
    assert ssh.parse(line.split()) == call


@pytest.mark.parametrize("line", ["", "-q", "-p", "-Z n1", "n1 -o"])
def test_what_is_no_ssh(line: str) -> None:
    with pytest.raises(HvdFtError):
        ssh.parse(line.split())


def test_the_names_of_a_node() -> None:
    plan = Plan(size=2)
    for host in ("n1", "10.213.0.2", "localhost", "127.0.0.1"):
        assert ssh.node_of(plan, host, here="n1") == "n1"
    for host in ("n2", "10.213.0.3", "example.org"):
        with pytest.raises(HvdFtError, match=f"Could not resolve hostname {host}"):
            ssh.node_of(plan, host, here="n1")


def test_a_command_keeps_the_environment_but_proxies() -> None:
    given = {"PATH": "/a", "X": "1", "HTTP_PROXY": "p", "no_proxy": "p", "FI_PROVIDER": "shm"}
    found = environment.for_command(ClusterDir("a"), given)
    assert found["PATH"] == f"/run/hvdft-cluster/a/bin:{sys.prefix}/bin:/a"
    assert (found["X"], found["FI_PROVIDER"], found["I_MPI_PIN"]) == ("1", "shm", "0")
    assert {"HTTP_PROXY", "no_proxy"}.isdisjoint(found)
