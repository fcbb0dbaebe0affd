"""Networks that fail: jobs on a cluster's nodes go on bit for bit, or end and name the host.

`make network` runs all of it; the long ones are left out of `make test`.
"""

import os
import re
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from conftest import HANG_SECONDS, Cluster, running_cluster
from test_generations import SUMS, await_clear

RANKS = 4
HOSTS = "n0:2,n1:1,n2:1"
LARGE, SMALL, COMPUTE = (250, 4_000_000, 0.0), (8000, 4096, 0.0), (12, 4096, 1.0)
# Shorter than the defaults, so that tests wait less; the rules are the same.
SUSPECT, LEASE, HOST = 2.0, 6.0, 30.0  # the first one follows from the second
LIMITS = {
    "HOROVOD_FT_LEASE_SECONDS": str(LEASE),
    "HOROVOD_FT_HOST_TIMEOUT_SECONDS": str(HOST),
}
AT_STEP = {LARGE: 40, SMALL: 2000, COMPUTE: 3}
pytestmark = pytest.mark.timeout(600)
long = pytest.mark.long


def digest(ops: int, size: int, ranks: int = RANKS) -> str:
    """What a rank prints that has had the right sums: worked out here, by itself."""
    pattern = (np.arange(min(1024, size // 4)) // 16 % 7 + 1).astype(np.float32)
    total, crc = np.float32(2.0**ranks - 1), 0
    for op in range(ops):
        crc = zlib.crc32(pattern * (total * np.float32(op % 7 + 1)), crc)
    return f"{crc:08x}"


@dataclass
class Running:
    """A job that runs, and what it has said so far."""

    process: "subprocess.Popen[str]"
    err: list[str] = field(default_factory=list)
    over: bool = False  # whether nothing more comes
    _news: threading.Condition = field(default_factory=threading.Condition)

    def listen(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            with self._news:
                self.err.append(line)
                self._news.notify_all()
        with self._news:
            self.over = True
            self._news.notify_all()

    def await_line(self, text: str, seconds: float = HANG_SECONDS) -> None:
        def said() -> bool:
            return any(text in line for line in self.err)

        with self._news:
            self._news.wait_for(lambda: said() or self.over, seconds)
        assert said(), (text, self.err)

    def end(self, seconds: float = HANG_SECONDS) -> tuple[int, str, str]:
        out = self.process.stdout
        assert out
        code = self.process.wait(seconds)
        return code, out.read(), "".join(self.err)


def start(
    cluster: Cluster,
    work: tuple[int, int, float],
    resume: str = "",
    limits: Mapping[str, str] = LIMITS,
    flags: Sequence[str] = (),
) -> Running:
    """Starts a job; returns when rank 0 is in the middle of it, unless it is resumed."""
    ops, size, seconds = work
    # Nothing comes of this drill, but that it is told.
    drill = ["--inject", f"rank=0,step={AT_STEP.get(work, 20)},raise"]
    more = ["--resume", resume] if resume else drill
    every = "1" if seconds else "20"
    job = ["run", "--verbose", "-np", str(RANKS), "-H", HOSTS, *more, *flags]
    job += [*SUMS, str(ops), str(size), every, str(seconds)]
    program = [sys.executable, "-m", "hvd_ft.cli"]
    process = subprocess.Popen(
        [*program, "cluster", "run", "--name", cluster.name, "--", *program, *job],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **limits},
    )
    running = Running(process)
    threading.Thread(target=running.listen, daemon=True).start()
    if not resume:
        running.await_line("hvdft: drill")
    return running


def expect_right_sums(running: Running, work: tuple[int, int, float], seconds: float = 300) -> str:
    """The job ends well, with no worker started again; returns what it has said."""
    code, out, err = running.end(seconds)
    assert code == 0, err
    found = re.findall(r"SUMS (\d+) (\d+) (\w+)", out)
    assert sorted(found) == [(str(r), "0", digest(*work[:2])) for r in range(RANKS)], err
    return err


@pytest.fixture
def nodes() -> Iterator[Cluster]:
    with running_cluster("--rate", "1gbit") as cluster:
        yield cluster


def disturb(cluster: Cluster, fault: str, *arguments: str, node: str = "n1") -> None:
    ended = cluster.hvdft(fault, node, *arguments)
    assert ended.code == 0, ended


WORKS = {"large ops": LARGE, "small ops": SMALL, "idle compute": COMPUTE}


def works(*short: str) -> pytest.MarkDecorator:
    """Tries a fault in each kind of work; but for these kinds that is long."""
    return pytest.mark.parametrize(
        "work",
        [
            pytest.param(work, id=name, marks=() if name in short else long)
            for name, work in WORKS.items()
        ],
    )


@pytest.mark.shows(later=True)
@works("large ops")
@pytest.mark.parametrize("seconds", [3, 10, pytest.param(25, marks=long)])
def test_a_link_that_is_down_for_a_while(
    nodes: Cluster, work: tuple[int, int, float], seconds: float
) -> None:
    running = start(nodes, work)
    disturb(nodes, "cut")
    if seconds > LEASE:
        running.await_line("host n1 (rank 2) has not answered for 6 s")
        time.sleep(seconds - LEASE)  # the fault's length is the matter
    else:
        running.await_line("host n1 (rank 2) does not answer")
        time.sleep(seconds - SUSPECT)
    disturb(nodes, "heal")
    running.await_line("host n1 (rank 2) answers again after")
    err = expect_right_sums(running, work)
    lost = seconds > LEASE + 2
    if lost:
        assert "host n1 (rank 2) was lost; starting generation 1 of its agents" in err
    assert "starting generation 2" not in err
    await_clear(nodes, 10, "".join(running.err))


@works()
@pytest.mark.parametrize("seconds", [5, 30, 120])
def test_a_link_that_is_down_for_a_while_by_the_default_limits(
    nodes: Cluster, work: tuple[int, int, float], seconds: float
) -> None:
    running = start(nodes, work, limits={})
    disturb(nodes, "cut")
    time.sleep(seconds)  # the fault's length is the matter
    disturb(nodes, "heal")
    err = expect_right_sums(running, work, 600)
    assert ("starting generation 1" in err) == (seconds > 20)
    assert "starting generation 2" not in err
    await_clear(nodes, 10, "".join(running.err))


@works("idle compute")
def test_a_link_that_is_down_for_ever_ends_the_job_and_it_can_be_resumed(
    nodes: Cluster, work: tuple[int, int, float]
) -> None:
    running = start(nodes, work)
    begun = time.monotonic()
    disturb(nodes, "cut")
    code, _, err = running.end(HOST + 60)
    assert code == 1, err
    last = err.strip().splitlines()[-1]
    assert last.startswith(
        "hvdft: host n1 (rank 2) has not answered for 30 s, so the job was ended"
    )
    assert time.monotonic() - begun < HOST + 20
    found = re.search(r"--resume (\w+) ", last)
    assert found
    for node in ("n0", "n2"):
        assert nodes.sh(node, f"ls -d /dev/shm/hvdft-*/{found[1]}")
    # The host that was cut off ends by itself what it has, and keeps the files too.
    deadline = time.monotonic() + HOST + LEASE + 20
    while nodes.sh("n1", "pgrep -f '[s]ums_script' || :"):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert nodes.sh("n1", f"ls -d /dev/shm/hvdft-*/{found[1]}")
    disturb(nodes, "heal")
    running = start(nodes, work, resume=found[1])
    code, out, err = running.end()
    assert code == 0, err
    assert {digest(*work[:2])} == set(re.findall(r"SUMS \d+ \d+ (\w+)", out))
    await_clear(nodes, 10, "".join(running.err))


@long
def test_a_way_that_leads_in_one_direction_only(nodes: Cluster) -> None:
    for direction, work in (("out", SMALL), ("in", LARGE)):
        running = start(nodes, work)
        disturb(nodes, "cut", "--direction", direction)
        running.await_line("host n1 (rank 2) has not answered for 6 s")
        disturb(nodes, "heal")
        expect_right_sums(running, work)
    await_clear(nodes, 10, "".join(running.err))


@works("large ops")
def test_all_connections_of_a_host_are_reset(nodes: Cluster, work: tuple[int, int, float]) -> None:
    running = start(nodes, work)
    disturb(nodes, "reset")
    err = expect_right_sums(running, work)
    assert "answered" not in err
    await_clear(nodes, 10, "".join(running.err))


@works("small ops")
@pytest.mark.parametrize(
    ("percent", "seconds"),
    [
        ("30", 5),
        pytest.param("5", 5, marks=long),
        pytest.param("5", 60, marks=long),
        pytest.param("30", 60, marks=long),
    ],
)
def test_a_link_that_loses_packets(
    nodes: Cluster, work: tuple[int, int, float], percent: str, seconds: float
) -> None:
    running = start(nodes, work)
    disturb(nodes, "lose", percent)
    time.sleep(seconds)  # the fault's length is the matter
    disturb(nodes, "heal")
    expect_right_sums(running, work)
    await_clear(nodes, 10, "".join(running.err))


@works()
def test_a_link_that_is_slow_for_20_seconds(nodes: Cluster, work: tuple[int, int, float]) -> None:
    running = start(nodes, work)
    disturb(nodes, "rate", "1mbit")
    time.sleep(20)  # the fault's length is the matter
    disturb(nodes, "heal")
    expect_right_sums(running, work)
    await_clear(nodes, 10, "".join(running.err))


@pytest.mark.shows(later=True)
def test_a_host_that_dies_ends_the_job_at_once_and_is_named(nodes: Cluster) -> None:
    running = start(nodes, LARGE)
    disturb(nodes, "kill")
    code, _, err = running.end(HOST + 60)
    assert code == 1, err
    last = err.strip().splitlines()[-1]
    assert last.startswith("hvdft: host n1 (rank 2) "), err
    assert "starting generation" not in err
    assert "[mpiexec" not in err
    assert "[proxy" not in err
    (found,) = re.findall(r"--resume (\w+) ", last)
    for node in ("n0", "n2"):
        assert nodes.sh(node, f"ls -d /dev/shm/hvdft-*/{found}")
        assert not nodes.sh(node, "pgrep -f '[s]ums_script|[h]vd_ft.agent' || :")
    clean = [sys.executable, "-m", "hvd_ft.cli", "clean", found, "-H", "n0,n2"]
    ended = nodes.hvdft("run", "--", *clean)
    assert sorted(ended.out.splitlines()) == [f"{node}: removed {found}" for node in ("n0", "n2")]


def test_a_link_that_broke_without_a_word_is_named(nodes: Cluster) -> None:
    """MPI's connections between two hosts are gone at one end only, as after a long time-out."""
    running = start(nodes, LARGE)
    disturb(nodes, "cut", node="n2")
    nodes.sh("n2", "ss --kill --tcp dst 10.213.0.2")  # its reset never arrives
    disturb(nodes, "heal", node="n2")
    expect_right_sums(running, LARGE)
    await_clear(nodes, 10, "".join(running.err))


def test_a_host_that_cannot_be_reached_at_the_start_is_named(nodes: Cluster) -> None:
    disturb(nodes, "kill")
    job = ["run", "-np", "2", "-H", "n0:1,n1:1", "python", "-c", "1"]
    ended = nodes.hvdft("run", "--", sys.executable, "-m", "hvd_ft.cli", *job)
    assert ended.code == 1
    lines = [line for line in ended.err.splitlines() if not line.startswith("ssh:")]
    assert lines[0].startswith("hvdft: network: "), ended.err
    assert len(lines) == 2, ended.err
    assert lines[1].startswith("hvdft: host n1 (rank 1) cannot be reached: ")
