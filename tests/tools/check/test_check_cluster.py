"""`hvdft check -H` on a cluster: the host that is slow, short of memory or dead is named."""

import json
import sys

import pytest
from conftest import running_cluster


@pytest.mark.job
@pytest.mark.shows(later=True)
def test_the_host_that_is_slow_and_the_one_that_has_little_are_named() -> None:
    """n1 has a slow link, n2 a small /dev/shm, n3 is dead."""
    with running_cluster("-n", "4") as cluster:
        assert cluster.hvdft("rate", "n1", "20mbit").code == 0
        cluster.sh("n2", "mount -o remount,size=300m /dev/shm")
        assert cluster.hvdft("kill", "n3").code == 0
        hvdft = [sys.executable, "-m", "hvd_ft.cli", "check", "--json", "--params", "10M"]
        ended = cluster.hvdft("run", "--", *hvdft, "-H", "n0:1,n1:1,n2:1,n3:1")
    assert ended.code == 2, ended
    told = json.loads(ended.out)
    found = {
        (finding["id"], host) for finding in told["findings"] for host in finding["hosts"] or [""]
    }
    # Of CPUs and memory nothing is said: the nodes share them with whatever else runs here.
    kinds = ("unreachable", "slower-link", "model-arena", "no-link", "clock", "version")
    assert {each for each in found if each[0] in kinds} == {
        ("unreachable", "n3"),
        ("slower-link", "n1"),
        ("model-arena", "n2"),
    }, found
    assert told["hosts"]["n1"]["speed"]["cpu"] > 0
    assert {link["sender"] for link in told["links"]} == {"n0", "n1", "n2"}
    slow = [link["rate"] for link in told["links"] if "n1" in (link["sender"], link["receiver"])]
    assert len(slow) == 4 and max(slow) < 10  # MB/s, of 20 Mbit/s
