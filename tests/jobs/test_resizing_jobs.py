"""Jobs that continue with fewer ranks when a host is lost, and with more when one is found."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from conftest import SCRIPTS, Cluster, running_cluster
from test_lost_hosts import expect_clear
from test_network import Running, disturb

from hvd_ft.checkpoint.catalogue import find

HVDFT = [sys.executable, "-m", "hvd_ft.cli"]
WORK = [sys.executable, "-W", "ignore", str(SCRIPTS / "resizing_script.py")]


@pytest.fixture
def nodes() -> Iterator[Cluster]:
    with running_cluster("-n", "4") as cluster:
        yield cluster


def start(
    cluster: Cluster,
    *flags: str,
    work: Sequence[str] = WORK,
    env: Mapping[str, str] | None = None,
) -> Running:
    enter = [*HVDFT, "cluster", "exec", "--name", cluster.name, "n0", "--"]
    process = subprocess.Popen(
        [*enter, *HVDFT, "run", "--no-live", *flags, *work],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **(env or {})},
    )
    running = Running(process)
    threading.Thread(target=running.listen, daemon=True).start()
    return running


def ends(out: str) -> list[str]:
    return sorted(line for line in out.splitlines() if line.startswith("END"))


@pytest.mark.shows(later=True)
def test_a_job_goes_on_with_fewer_ranks_exactly_from_the_last_cut(
    nodes: Cluster, tmp_path: Path
) -> None:
    folder = tmp_path / "c"
    keep = ["--checkpoint-dir", str(folder), "--checkpoint-keep", "99"]
    hosts = ["-np", "4", "-H", "n0:2,n1:1,n2:1"]
    running = start(nodes, *hosts, "--min-np", "2", *keep)
    running.await_line("20 steps are done")
    disturb(nodes, "kill", node="n1")
    running.await_line("the job continues with 3 ranks on n0:2,n2:1")
    code, out, err = running.end()
    assert code == 0, err
    assert len(ends(out)) == 3 and all(" of 3 " in line for line in ends(out)), err
    told = r"^hvdft: done: 200 steps, 0 failures, 1 host lost(, \d+ steps? lost)?$"
    assert re.search(told, err, re.M), err
    expect_clear(nodes, "n0", "n2")
    # What a run gives that shrinks at the same step.
    (path,) = [each.path for each in find(folder) if each.state == "without rank 2"]
    again = start(nodes, "-np", "3", "-H", "n0:2,n2:1", "--resume", str(path))
    code, other, err = again.end()
    assert code == 0, err
    assert ends(other) == ends(out)


def test_a_host_that_is_cut_off_stands_still_before_the_job_goes_on_without_it(
    nodes: Cluster, tmp_path: Path
) -> None:
    keep = ["--checkpoint-dir", str(tmp_path / "c"), "--checkpoint-keep", "99"]
    running = start(nodes, "-np", "3", "-H", "n0:2,n1:1", "--min-np", "2", *keep)
    running.await_line("20 steps are done")
    disturb(nodes, "cut", node="n1")
    running.await_line("has not answered for")
    running.await_line("the job continues without it, if enough ranks are left")
    processes = nodes.sh("n1", "ps -ww -eo stat,args | grep '[r]esizing_script\\|[h]vd_ft.check'")
    states = sorted(line[0] for line in processes.splitlines())
    assert states == ["S", "T", "T", "T"], processes  # all but the shim
    running.await_line("the job continues with 2 ranks on n0:2")
    disturb(nodes, "heal", node="n1")
    expect_clear(nodes, "n1", seconds=90)  # its end of the old line takes a while to break
    code, out, err = running.end()
    assert code == 0, err
    assert len(ends(out)) == 2 and all(" of 2 " in line for line in ends(out)), err
    # The cut-off host has written nothing by itself.
    states = [each.state for each in find(tmp_path / "c")]
    assert "without rank 2" in states
    assert set(states) <= {"without rank 2", "complete"}, states


def test_a_host_that_the_script_finds_is_taken_in(nodes: Cluster, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("n0:2\n")
    folder = tmp_path / "c"
    keep = ["--checkpoint-dir", str(folder), "--checkpoint-keep", "99"]
    script = ["--host-discovery-script", f"cat {hosts}", "--max-np", "3"]
    running = start(nodes, "-np", "2", "--min-np", "2", *script, *keep)
    running.await_line("10 steps are done")
    hosts.write_text("n0:2\nn1:4\n")
    running.await_line("the job continues with 3 ranks on n0:2,n1:1")
    code, out, err = running.end()
    assert code == 0, err
    assert len(ends(out)) == 3 and all(" of 3 " in line for line in ends(out)), err
    assert "the hosts have changed (n1 more): continuing with 3 ranks" in err
    (path,) = re.findall(r"continuing from (\S+): step", err) or [""]
    assert path.startswith(str(folder)), err
    again = start(nodes, "-np", "3", "-H", "n0:2,n1:1", "--resume", path)
    code, other, err = again.end()
    assert code == 0, err
    assert ends(other) == ends(out)


def test_below_the_least_number_of_ranks_the_job_ends(nodes: Cluster, tmp_path: Path) -> None:
    keep = ["--checkpoint-dir", str(tmp_path / "c")]
    hosts = ["-np", "3", "-H", "n0:1,n1:1,n2:1"]
    running = start(nodes, *hosts, "--min-np", "3", "--elastic-timeout", "4", *keep)
    running.await_line("20 steps are done")
    disturb(nodes, "kill", node="n2")
    running.await_line("waiting for hosts: there are 2 slots, and the job needs 3")
    code, _, err = running.end()
    assert code == 1, err
    assert "there were not 3 slots within 4 s, so the job was ended" in err
    assert re.search(rf"hvdft run --resume {tmp_path / 'c'}/\S+ continues it", err), err
    expect_clear(nodes, "n0", "n1")
