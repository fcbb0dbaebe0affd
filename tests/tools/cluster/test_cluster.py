"""A cluster on this machine: nodes that MPI takes for hosts, links with a rate, nothing left."""

import contextlib
import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from conftest import Cluster, Ended, running_cluster

from hvd_ft import cli
from hvd_ft.tools.cluster import tools
from hvd_ft.tools.cluster.cluster_dir import ClusterDir
from hvd_ft.tools.cluster.exec_server import process_behind

TRANSFER = str(Path(__file__).with_name("cluster_transfer.py"))
WITHIN_SECONDS = 30.0
PLACEMENTS = {"4-2-2": "n0 n0 n0 n0 n1 n1 n2 n2", "4-3-1": "n0 n0 n0 n0 n1 n1 n1 n2"}


def expect_one_line(ended: Ended, part: str) -> None:
    assert (ended.code, ended.out) == (2, ""), ended
    assert ended.err.startswith("hvdft: ")
    assert ended.err.count("\n") == 1
    assert part in ended.err


def networks(pids: list[int]) -> set[str]:
    """Returns the network namespaces of processes."""
    return {os.readlink(f"/proc/{pid}/ns/net") for pid in pids}


def processes_in(namespaces: set[str]) -> list[int]:
    """Returns the processes that are in these network namespaces, but zombies."""
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.Error):
            if networks([pid]) <= namespaces and psutil.Process(pid).status() != "zombie":
                found.append(pid)
    return found


def own_processes(cluster: Cluster, nodes: int = 3) -> list[int]:
    """Returns the switch's process id and then those of the nodes' inits."""
    home = ClusterDir(cluster.name)
    servers = [home.switch_socket, *(home.exec_socket(f"n{node}") for node in range(nodes))]
    pids = [process_behind(server) for server in servers]
    assert all(pids)
    return [pid for pid in pids if pid]


def expect_nothing_left(cluster: Cluster, namespaces: set[str]) -> None:
    assert not ClusterDir(cluster.name).exists()
    assert processes_in(namespaces) == []
    assert cluster.name not in Path("/proc/self/mounts").read_text()


def until(what: str, happened: Iterator[bool]) -> None:
    """Looks again and again until something has happened."""
    deadline = time.monotonic() + WITHIN_SECONDS
    for yes in happened:
        if yes:
            return
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


@pytest.mark.shows
def test_a_node_is_a_host_of_its_own(cluster: Cluster) -> None:
    cluster.sh("n0", "touch /dev/shm/mine")
    told = cluster.sh(
        "n1",
        "hostname; cat /proc/sys/kernel/hostname; ls /sys/class/net /dev/shm; cat /etc/hosts;"
        "ls -d /sys/fs/cgroup/*; echo processes: $(ls -d /proc/[0-9]* | wc -l)",
    )
    lines = told.splitlines()
    assert lines[:2] == ["n1", "n1"]
    assert {"eth0", "lo", "10.213.0.3 n2"} <= set(lines)
    assert "mine" not in lines
    assert int(lines[-1].split()[-1]) < 10
    assert cluster.sh("n0", "ls /dev/shm") == "mine\n"


def test_a_node_reaches_the_others_and_nothing_else(cluster: Cluster) -> None:
    connect = f"{sys.executable} -c 'import socket; socket.create_connection((\"%s\", 9), 5)' 2>&1"
    assert "Connection refused" in cluster.sh("n0", f"{connect % 'n2'} | tail -1")
    assert "Network is unreachable" in cluster.sh("n0", f"{connect % '192.0.2.1'} | tail -1")


def test_a_command_has_our_streams_directory_and_exit_code(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("http_proxy", "p")
    monkeypatch.setenv("LETTER", "ä")
    script = "pwd; echo $LETTER; echo $http_proxy >&2; exit 7"
    ended = cluster.hvdft("exec", "n2", "sh", "-c", script)
    assert (ended.code, ended.out, ended.err) == (7, f"{tmp_path}\nä\n", "\n")
    assert cluster.hvdft("exec", "n2", "sh", "-c", "kill -9 $$").code == 137
    expect_one_line(cluster.hvdft("exec", "n2", "./none"), "./none cannot be run on n2: No such")


def test_a_signal_reaches_the_command(cluster: Cluster) -> None:
    program = [sys.executable, "-m", "hvd_ft.cli", "cluster", "exec", "--name", cluster.name, "n1"]
    script = "trap 'echo ended; exit 5' TERM; echo begun; while :; do sleep 0.01; done"
    with subprocess.Popen([*program, "sh", "-c", script], stdout=subprocess.PIPE) as running:
        assert running.stdout
        assert running.stdout.readline() == b"begun\n"
        running.terminate()
        assert running.stdout.readline() == b"ended\n"
        assert running.wait(WITHIN_SECONDS) == 5


def test_a_command_is_hung_up_on_when_its_caller_is_killed(cluster: Cluster) -> None:
    program = [sys.executable, "-m", "hvd_ft.cli", "cluster", "exec", "--name", cluster.name, "n1"]
    script = "trap 'echo ended; exit 5' HUP; echo begun; while :; do sleep 0.01; done"
    with subprocess.Popen([*program, "sh", "-c", script], stdout=subprocess.PIPE) as running:
        assert running.stdout
        assert running.stdout.readline() == b"begun\n"
        running.kill()
        assert running.stdout.readline() == b"ended\n"


def test_ssh_runs_no_start_up_files(cluster: Cluster) -> None:
    """A node that is killed while it runs them may leave a lock that all others wait for."""
    assert cluster.sh("n0", "ssh n1 'echo $0 $SHELL'") == "/bin/sh /bin/sh\n"


@pytest.mark.shows
def test_ssh_enters_a_node(cluster: Cluster) -> None:
    assert cluster.sh("n0", "echo word | ssh -q -o A=b n1 -p 22 'cat; hostname; pwd; echo $X'") == (
        f"word\nn1\n{pwd.getpwuid(os.getuid()).pw_dir}\n\n"  # as sshd has it, whatever HOME says
    )
    assert cluster.sh("n0", "ssh root@10.213.0.3 exit 9 || echo $?") == "9\n"
    assert cluster.sh("n2", "ssh -n localhost hostname") == "n2\n"
    assert cluster.sh("n0", "ssh n9 true 2>&1 || echo $?") == (
        f"ssh: Could not resolve hostname n9: it is not a node of cluster {cluster.name}\n255\n"
    )


@pytest.mark.job
def test_what_the_starter_ignores_is_not_ignored_on_the_nodes() -> None:
    with running_cluster("-n", "1", before="trap '' INT HUP;") as cluster:
        ended = cluster.hvdft("exec", "n0", "sh", "-c", "kill -HUP $$")
        assert ended.code == 128 + signal.SIGHUP
        cluster.sh("n0", "kill -INT 1; kill -KILL 1; kill -TERM -1 || true; echo alive")


def seconds_for(cluster: Cluster, size: int, port_file: Path) -> float:
    """Sends that many bytes from n0 to n1; returns how long they took to arrive."""
    program = [sys.executable, "-m", "hvd_ft.cli", "cluster", "exec", "--name", cluster.name]
    receive = [*program, "n1", sys.executable, TRANSFER, "receive", str(port_file), str(size)]
    with subprocess.Popen(receive, stdout=subprocess.PIPE, text=True) as receiver:
        until("the receiver listens", iter(port_file.exists, None))
        cluster.sh("n0", f"{sys.executable} {TRANSFER} send {port_file} {size} n1")
        return float(receiver.communicate(timeout=WITHIN_SECONDS)[0])


@pytest.mark.job
def test_a_link_has_the_rate_it_was_given(tmp_path: Path) -> None:
    took = {}
    for megabit, turns in ((20, 1), (80, 3)):
        with running_cluster("-n", "2", "--rate", f"{megabit}mbit") as cluster:
            ports = [tmp_path / f"{megabit}-{turn}" for turn in range(turns)]
            took[megabit] = min(seconds_for(cluster, 2_500_000, port) for port in ports)
    # The wire takes 1.04 s and a quarter of that, less a burst of 0.13 MB. A machine that is busy
    # may add to it, so the shorter one has several turns.
    assert took[20] > 0.9
    assert took[80] > 0.2
    assert 2 < took[20] / took[80] < 6


@pytest.mark.job
def test_a_delay_is_given_or_refused(tmp_path: Path) -> None:
    links = "ip link add name a type dummy || ip link add name a type veth peer name b"
    try:
        tools.run(*tools.UNSHARE, "sh", "-c", f"{links}; tc qdisc add dev a root netem delay 1ms")
    except tools.HvdFtError:
        cluster = Cluster("test-delay")
        ended = cluster.hvdft("up", "--delay", "5ms")
        expect_one_line(ended, "--delay 5ms: this kernel has no netem (")
        assert not ClusterDir(cluster.name).exists()
        return
    connect = "import socket, time; b = time.monotonic(); s = socket.socket(); s.settimeout(9);"
    connect += "s.connect_ex(('n1', 9)); print(time.monotonic() - b)"
    with running_cluster("-n", "2", "--delay", "20ms") as cluster:
        assert 0.04 <= float(cluster.sh("n0", f'{sys.executable} -c "{connect}"')) < 1


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_mpirun_places_ranks_as_told(cluster: Cluster, placement: str, tmp_path: Path) -> None:
    machines = tmp_path / "machines"
    assert cluster.hvdft("hosts", placement, "--machine-file", str(machines)).code == 0
    command = f"mpirun -np 8 -machinefile {machines} sh -c 'echo $PMI_RANK $(hostname)'"
    ended = cluster.hvdft("run", "--", "sh", "-c", command)
    assert ended.code == 0, ended
    ranks = sorted(ended.out.splitlines())
    assert " ".join(line.split()[1] for line in ranks) == PLACEMENTS[placement]


@pytest.mark.shows
def test_ranks_of_several_nodes_talk(cluster: Cluster) -> None:
    code = "from mpi4py.MPI import COMM_WORLD as w; print(w.allreduce(2**w.rank))"
    ended = cluster.hvdft(
        *("run", "--", "mpirun", "-np", "3", "-ppn", "1", "-hosts", "n0,n1,n2"),
        *(sys.executable, "-c", code),
    )
    # Lines of several ranks may be mixed.
    assert (ended.code, sorted(ended.out)) == (0, sorted("7\n" * 3)), ended


@pytest.mark.shows
def test_horovodrun_takes_uneven_slots(cluster: Cluster) -> None:
    hosts = cluster.hvdft("hosts", "4-3-1").out.strip()
    assert hosts == "n0:4,n1:3,n2:1"
    # Without naming the interface it starts a Python with TensorFlow on every node to find it.
    ended = cluster.hvdft(
        *("run", "--", "horovodrun", "-np", "8", "-H", hosts, "--network-interface", "eth0"),
        *("sh", "-c", "echo $PMI_RANK $(hostname)"),
    )
    assert ended.code == 0, ended
    ranks = sorted(line.split("] ")[1] for line in ended.out.splitlines())
    assert " ".join(line.split()[1] for line in ranks) == PLACEMENTS["4-3-1"]


def test_hvdft_run_starts_workers_on_the_nodes(cluster: Cluster) -> None:
    job = ["hvdft", "run", "-np", "4", "-H", "n0:2,n1:1,n2:1", "--no-live"]
    ended = cluster.hvdft("run", "--", *job, "sh", "-c", "echo $HOROVOD_RANK on $(hostname)")
    assert ended.code == 0, ended.err
    assert sorted(ended.out.split("\n")) == ["", "0 on n0", "1 on n0", "2 on n1", "3 on n2"]


@pytest.mark.shows
@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["up"], "is up already; take it down first (hvdft cluster down --name"),
        (["exec", "n3", "true"], "n3 is not a node of cluster"),
        (["exec", "../n1", "true"], "../n1 is not a node of cluster"),
        (["exec", "n1"], "no command given"),
        (["run", "--"], "no command given"),
        (["hosts", "4-x"], "'4-x' is not a placement"),
        (["hosts", "1-1-1-1"], "has 4 nodes and cluster"),
        (["hosts", "1", "--machine-file", "/none/m"], "cannot write /none/m (No such file"),
        (["exec", "n0", "hvdft", "cluster", "down", "--name", "NAME"], "do it outside"),
    ],
)
def test_bad_input_on_a_cluster(cluster: Cluster, arguments: list[str], part: str) -> None:
    given = [cluster.name if word == "NAME" else word for word in arguments]
    expect_one_line(cluster.hvdft(*given), part)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["down"], "is not up; nothing to take down"),
        (["exec", "n0", "true"], "is not up; start it: hvdft cluster up --name test-none"),
        (["run", "true"], "is not up; start it"),
        (["hosts", "4-4"], "is not up; start it"),
        (["status"], "is not up; start it"),
        (["up", "--rate", "fast"], "--rate fast: give 100kbit to 100gbit"),
        (["up", "--delay", "long"], "--delay long: give 1us to 10s"),
        (["up", "-n", "0"], "'0' is not a number of nodes, 1 or more"),
        (["up", "-n", "65"], "-n 65: a cluster has 1 to 64 nodes"),
        (["up", "-n", "two"], "'two' is not a number of nodes"),
        (["up", "--name", "../x"], "--name '../x': give 1 to 32 lower-case letters"),
    ],
)
def test_bad_input_without_a_cluster(arguments: list[str], part: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gets past the first line")
    expect_one_line(Cluster("test-none").hvdft(*arguments), part)


def test_without_root(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for command in ("up", "down"):
        assert cli.main(["cluster", command]) == 2
        assert capsys.readouterr().err.endswith("run it as root\n")


def test_without_iproute2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(tools, "program_path", lambda: "/none")
    assert cli.main(["cluster", "up"]) == 2
    assert "ip was not found" in (err := capsys.readouterr().err)
    assert "(Debian: apt-get install iproute2)" in err


@pytest.mark.job
def test_down_ends_everything_on_the_nodes() -> None:
    with running_cluster() as cluster:
        namespaces = networks(own_processes(cluster))
        assert len(namespaces) == 4
        # In a session of its own, with its parent gone: still the node's.
        cluster.sh("n1", "setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo")
        assert cluster.hvdft("status").out.splitlines()[1:] == [
            f"n{node}  10.213.0.{node + 1}  up" for node in range(3)
        ]
        assert cluster.hvdft("down").code == 0
        expect_nothing_left(cluster, namespaces)
        expect_one_line(cluster.hvdft("down"), "is not up; nothing to take down")


@pytest.mark.job
def test_a_node_that_was_killed_is_dead_and_the_others_live() -> None:
    with running_cluster("-n", "2") as cluster:
        pids = own_processes(cluster, nodes=2)
        namespaces = networks(pids)
        os.kill(pids[2], signal.SIGKILL)
        expect_one_line(cluster.hvdft("exec", "n1", "true"), "node n1 is dead")
        assert cluster.hvdft("status").out.splitlines()[1:] == [
            "n0  10.213.0.1  up",
            "n1  10.213.0.2  dead",
        ]
        assert cluster.sh("n0", "ssh n1 true 2>&1 || echo $?").endswith("255\n")
        assert cluster.hvdft("down").code == 0
        expect_nothing_left(cluster, namespaces)


CONNECT = """
import socket, sys, time
end = None
while end is None:  # the other end may not listen yet
    try:
        end = socket.create_connection((sys.argv[1], 7000))
    except ConnectionRefusedError:
        time.sleep(0.05)
end.sendall(b"x")
assert end.recv(1) == b"y"
print("connected", flush=True)
end.settimeout(3)
try:
    print("ended", end.recv(1))
except TimeoutError:
    print("silent")
except OSError as error:
    print("error", error)
"""
SERVE = """
import os, socket, time
held = open("/dev/shm/held", "wb")
held.write(bytes(256 << 20))
held.flush()
end = socket.create_server(("", 7000)).accept()[0]
assert end.recv(1) == b"x"
end.sendall(b"y")
if os.fork() == 0:
    os.setsid()
time.sleep(1000)
"""


def shared_memory() -> int:
    """Returns how much shared memory the machine uses, in KiB."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Shmem:"))


@pytest.mark.shows
@pytest.mark.job
def test_kill_takes_processes_shared_memory_and_network_at_once() -> None:
    with running_cluster("-n", "2") as cluster:
        switch, _, init = own_processes(cluster, nodes=2)
        namespaces = networks([init])
        mounts = os.readlink(f"/proc/{init}/ns/mnt")
        program = [sys.executable, "-m", "hvd_ft.cli", "cluster", "exec", "--name", cluster.name]
        python = ["--", sys.executable, "-c"]
        with (
            subprocess.Popen([*program, "n1", *python, SERVE], stderr=subprocess.DEVNULL) as server,
            subprocess.Popen(
                [*program, "n0", *python, CONNECT, "n1"],
                stdout=subprocess.PIPE,
                text=True,
            ) as client,
        ):
            assert client.stdout
            assert client.stdout.readline() == "connected\n"
            assert len(processes_in(namespaces)) >= 3
            before = shared_memory()
            assert cluster.hvdft("kill", "n1").code == 0
            # The command returns when the last process is dead; what it held goes with it.
            assert processes_in(namespaces) == []
            assert not any(_has_mounts(pid, mounts) for pid in psutil.pids())
            until(
                "the memory is free", (shared_memory() < before - (128 << 10) for _ in iter(int, 1))
            )
            links = ["nsenter", f"--net=/proc/{switch}/ns/net", "ip", "-o", "link"]
            assert " n0@" in (listing := subprocess.check_output(links, text=True))
            assert " n1@" not in listing
            # Nobody tells the other end of a connection, as after a power failure.
            assert client.stdout.read() == "silent\n"
            assert client.wait() == 0
            assert server.wait() != 0
        assert cluster.sh("n0", "ls /dev/shm") == ""


def _has_mounts(pid: int, mounts: str) -> bool:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/mnt") == mounts
    return False


@pytest.mark.job
def test_up_follows_a_cluster_whose_switch_was_killed() -> None:
    with running_cluster("-n", "2") as cluster:
        pids = own_processes(cluster, nodes=2)
        namespaces = networks(pids)
        cluster.sh("n1", "setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo")
        os.kill(pids[0], signal.SIGKILL)
        home = ClusterDir(cluster.name)
        until("the nodes follow the switch", (not home.alive() for _ in iter(int, 1)))
        expect_one_line(cluster.hvdft("exec", "n1", "true"), "is dead: it was killed")
        assert processes_in(namespaces) == []
        assert cluster.hvdft("up", "-n", "1").code == 0
        assert cluster.hvdft("down").code == 0
        expect_nothing_left(cluster, networks([]))


@pytest.mark.job
def test_nothing_is_left_of_an_up_that_was_killed() -> None:
    with running_cluster("-n", "1") as cluster:  # or the test is skipped
        cluster.hvdft("down")
        home = ClusterDir(cluster.name)
        program = [sys.executable, "-m", "hvd_ft.cli", "cluster", "up", "--name", cluster.name]
        with subprocess.Popen([*program, "-n", "6"]) as starting:
            until("n0 is there", iter(home.exec_socket("n0").exists, None))
            [switch] = own_processes(cluster, nodes=0)
            namespaces = networks([switch])
            starting.kill()
        until("its processes end", (not home.alive() for _ in iter(int, 1)))
        assert cluster.hvdft("down").code == 0
        expect_nothing_left(cluster, namespaces)
