"""What is reachable of a running job: where its processes listen, and who can read its key."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from conftest import SCRIPTS, Cluster, running_cluster
from test_network import Running

MARK = "HVD_FT_TEST_LISTENING"
HVDFT = [sys.executable, "-m", "hvd_ft.cli"]
SCRIPT = [sys.executable, str(SCRIPTS / "checkpoint_script.py")]
LISTENS = "0A"  # a TCP socket's state
pytestmark = pytest.mark.timeout(150)


class Seen:
    """Processes of a job, as /proc shows them, whatever node they are on.

    Args:
        pids: all of them.
    """

    def __init__(self, pids: list[int]) -> None:
        self.arguments, self.environments = {}, {}
        self.listening: set[tuple[str, str]] = set()  # address, program
        self.ports: set[int] = set()  # of TCP, but for loopback's
        for pid in pids:
            try:
                self._look(Path(f"/proc/{pid}"))
            except OSError:  # it has ended
                continue

    def _look(self, proc: Path) -> None:
        arguments = proc.joinpath("cmdline").read_bytes().decode()
        environ = dict(
            line.split("=", 1)
            for line in proc.joinpath("environ").read_bytes().decode().split("\0")
            if "=" in line
        )
        ends = [os.readlink(end) for end in proc.joinpath("fd").iterdir()]
        own = {end[8:-1] for end in ends if end.startswith("socket:[")}
        self.arguments[int(proc.name)] = arguments
        self.environments[int(proc.name)] = environ
        for kind in ("tcp", "tcp6", "udp", "udp6"):
            for line in proc.joinpath("net", kind).read_text().splitlines()[1:]:
                words = line.split()
                if words[9] in own and (words[3] == LISTENS or kind.startswith("udp")):
                    address = bytes.fromhex(words[1].partition(":")[0])
                    backwards = b"".join(
                        address[at : at + 4][::-1] for at in range(0, len(address), 4)
                    )
                    family = socket.AF_INET if len(backwards) == 4 else socket.AF_INET6
                    shown = socket.inet_ntop(family, backwards)
                    self.listening.add((shown, arguments[:80]))
                    if kind.startswith("tcp") and not shown.startswith("127."):
                        self.ports.add(int(words[1].partition(":")[2], 16))

    @property
    def key(self) -> str:
        """Of the job: the end of what its agents are told of the launcher."""
        [told] = {
            environ["HOROVOD_FT_LAUNCHER"]
            for environ in self.environments.values()
            if "HOROVOD_FT_LAUNCHER" in environ
        }
        return told.rpartition(":")[2]

    def expect_a_secret_key(self) -> None:
        key = self.key
        assert re.fullmatch("[0-9a-f]{64}", key)
        assert not [text for text in self.arguments.values() if key in text]
        # Nor do the user's programs get it.
        workers = [env for env in self.environments.values() if "HOROVOD_RANK" in env]
        assert workers
        assert not [env for env in workers if key in "".join(env.values())]


def marked(mark: str) -> list[int]:
    """The processes that have inherited a mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def beside(pids: list[int]) -> list[int]:
    """All processes in the networks of these, which are those of a cluster's nodes."""
    networks = {_network(pid) for pid in pids} - {_network(os.getpid()), ""}
    return [pid for pid in psutil.pids() if _network(pid) in networks]


def _network(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return ""


def start(mark: str, ranks: int, arenas: Path, folder: Path, *before: str, hosts: str) -> Running:
    """Starts a job that pauses in its training; returns when it does."""
    flags = ["-H", hosts] if hosts else ["--spares", "1"]
    flags += ["--checkpoint-dir", str(folder / "c"), "--report", str(folder / "report.jsonl")]
    process = subprocess.Popen(
        [*before, *HVDFT, "run", "--verbose", "-np", str(ranks), *flags, *SCRIPT],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            MARK: mark,
            "PLAN": "pause:0:6",
            "HOROVOD_FT_ARENA_DIR": str(arenas),
            "TF_CPP_MIN_LOG_LEVEL": "3",
        },
    )
    running = Running(process)
    threading.Thread(target=running.listen, daemon=True).start()
    for rank in range(ranks):
        running.await_line(f"PAUSED {rank}")
    return running


def expect_private(key: str, folder: Path, running: Running) -> None:
    """The key is in nothing that the job has written where others may read it."""
    process = running.process
    process.terminate()
    code, out, err = running.end()
    assert code == 143, err
    assert key not in out + err
    for path in (path for path in folder.rglob("*") if path.is_file()):
        assert key not in path.read_text(errors="replace"), path


@pytest.fixture
def mark() -> Iterator[str]:
    mark = uuid.uuid4().hex
    yield mark
    for pid in marked(mark):
        psutil.Process(pid).kill()


def test_on_one_host_nothing_listens_beyond_loopback(
    mark: str, arena_dir: Path, tmp_path: Path
) -> None:
    running = start(mark, 2, arena_dir, tmp_path, hosts="")
    seen = Seen(marked(mark))
    seen.expect_a_secret_key()
    programs = {text.split("\0")[0].rpartition("/")[2] for text in seen.arguments.values()}
    assert {"mpiexec.hydra", "hydra_pmi_proxy"} < programs
    assert seen.listening
    assert {address for address, _ in seen.listening} == {"127.0.0.1"}, seen.listening
    [job] = (arena_dir / f"hvdft-{os.geteuid()}").iterdir()
    for path in [job.parent, job, *job.rglob("*")]:
        expected = 0o700 if path.is_dir() else 0o600
        if not path.is_symlink():
            assert path.lstat().st_mode & 0o777 == expected, path
    expect_private(seen.key, tmp_path, running)


@pytest.fixture
def nodes() -> Iterator[Cluster]:
    with running_cluster("-n", "3") as cluster:
        yield cluster


@pytest.mark.shows(later=True)
@pytest.mark.parametrize(("interface", "ports"), [("", ""), ("eth0", "41000-41059")])
def test_on_several_hosts_nothing_listens_beyond_the_job_s_interface(
    nodes: Cluster,
    mark: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    interface: str,
    ports: str,
) -> None:
    # Another interface of every host, which is none of the job's.
    for number, node in enumerate(("n0", "n1", "n2")):
        nodes.sh(node, f"ip address add 10.77.0.{number + 1}/24 dev lo")
    monkeypatch.setenv("HOROVOD_FT_INTERFACE", interface)
    monkeypatch.setenv("HOROVOD_FT_PORTS", ports)
    enter = [*HVDFT, "cluster", "run", "--name", nodes.name, "--"]
    running = start(mark, 4, Path("/dev/shm"), tmp_path, *enter, hosts="n0:2,n1:1,n2:1")
    seen = Seen(beside(marked(mark)))
    seen.expect_a_secret_key()
    interfaces = json.loads(nodes.sh("n0", "ip -json address show dev eth0"))
    [own] = [each["local"] for each in interfaces[0]["addr_info"] if each["family"] == "inet"]
    network = own.rpartition(".")[0]
    assert seen.listening
    beyond = {
        found for found in seen.listening if found[0].rpartition(".")[0] not in (network, "127.0.0")
    }
    assert not beyond
    assert any(address == own and "hvd_ft.cli" in who for address, who in seen.listening)
    assert seen.ports
    if ports:
        assert seen.ports <= set(range(41000, 41060)), seen.ports
    for node in ("n0", "n1", "n2"):
        modes = nodes.sh(node, "find /dev/shm/hvdft-* ! -type l -printf '%y %m\\n'").splitlines()
        assert set(modes) <= {"d 700", "f 600", "p 600", "s 600"}, modes
    expect_private(seen.key, tmp_path, running)


def test_an_interface_that_is_not_there(nodes: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_FT_INTERFACE", "ib7")
    ended = nodes.hvdft("run", "--", *HVDFT, "run", "-np", "2", "-H", "n0:1,n1:1", *SCRIPT)
    assert ended.code == 2
    assert ended.err == (
        "hvdft: --network-interface ib7 (HOROVOD_FT_INTERFACE): this host has no such interface "
        "with an IPv4 address; give one of eth0, lo, or all\n"
    )
