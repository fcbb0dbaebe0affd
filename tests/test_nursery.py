"""The nursery with real processes. A fifo brings what they have to say, so nothing has to sleep."""

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hvd_ft import jobdir
from hvd_ft.channel import Message
from hvd_ft.nursery import NurseryProcess
from hvd_ft.nursery_life import WORKER

TIMEOUT_SECONDS = 20.0

# A worker with a child, a grandchild in a session of its own and an orphan that minds no SIGTERM.
FAMILY = """
import os, signal, subprocess, sys
out = os.open(sys.argv[1], os.O_WRONLY)
def tell(*pids): os.write(out, f"{' '.join(map(str, pids))}\\n".encode())
child = subprocess.Popen(["sleep", "600"])
session = subprocess.Popen(["sh", "-c", "sleep 600; true"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        tell(os.getpid())
        signal.pause()
    os._exit(0)
os.wait()
tell(os.getpid(), child.pid, session.pid)
signal.pause()
"""

AGENT = """
import os, signal, sys
from hvd_ft.jobdir import JobDirectory
from hvd_ft.nursery import NurseryProcess
from hvd_ft.nursery_life import WORKER
nursery = NurseryProcess.fork()
directory = JobDirectory.create(sys.argv[2], "job")
nursery.watch_job(directory.path)
nursery.start(WORKER, [sys.executable, "-c", sys.argv[3], sys.argv[1]], dict(os.environ), "/")
nursery.start("hook", ["sh", "-c", "echo $$ > " + sys.argv[1] + "; sleep 600"], {}, "/")
signal.pause()
"""

# An agent that waits for ever in MPI_Init, where Intel MPI has made a file for all to map.
STUCK = """
import mmap, os, signal, sys
from hvd_ft.nursery import NurseryProcess
nursery = NurseryProcess.fork()
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.truncate(file, 192)
mapped = mmap.mmap(file, 0)
nursery.limit(60, "too early")
nursery.unlimit()
nursery.limit(0.1, "waited for others")
signal.pause()
"""


class Fifo:
    """Lines that processes write for the test."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path, 0o600)
        self.path = str(path)
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)  # read and write: never ends
        self._data = b""

    def line(self) -> str:
        while b"\n" not in self._data:
            assert select.select([self._file], [], [], TIMEOUT_SECONDS)[0], "nothing was told"
            self._data += os.read(self._file, 4096)
        line, self._data = self._data.split(b"\n", 1)
        return line.decode()

    def pids(self, lines: int) -> list[int]:
        return [int(pid) for _ in range(lines) for pid in self.line().split()]


@pytest.fixture
def fifo(tmp_path: Path) -> Fifo:
    return Fifo(tmp_path / "fifo")


@pytest.fixture
def nursery() -> Iterator[NurseryProcess]:
    process = NurseryProcess.fork()
    yield process
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        process.end(TIMEOUT_SECONDS)


def report(nursery: NurseryProcess) -> Message:
    """Returns the next report; the tests make sure that it comes alone."""
    messages: list[Message] = []
    while not messages:
        ready, _, _ = select.select([nursery.channel.fileno()], [], [], TIMEOUT_SECONDS)
        assert ready, "the nursery reported nothing"
        received = nursery.channel.receive()
        assert received is not None, "the nursery is gone"
        messages += received
    assert len(messages) == 1
    return messages[0]


def start(
    nursery: NurseryProcess,
    *argv: str,
    name: str = WORKER,
    env: dict[str, str] | None = None,
    cwd: str = "/",
) -> Message:
    nursery.start(name, list(argv), {**os.environ, **(env or {})}, cwd)
    return report(nursery)


def assert_gone(*pids: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            ended = select.select([descriptor], [], [], TIMEOUT_SECONDS)[0]
            os.close(descriptor)
            assert ended, f"process {pid} is left"


# The gate keeps the two reports from coming together.
@pytest.mark.parametrize(
    ("ending", "status"), [("exit 0", 0), ("exit 7", 7 << 8), ("kill -9 $$", 9), ("kill $$", 15)]
)
def test_an_exit_is_reported_with_its_status(
    nursery: NurseryProcess, fifo: Fifo, ending: str, status: int
) -> None:
    started = start(nursery, "sh", "-c", f"read gate < {fifo.path}; {ending}")
    assert (started["report"], started["name"]) == ("started", WORKER)
    Path(fifo.path).write_text("go\n")
    exited = report(nursery)
    assert (exited["report"], exited["pid"]) == ("exited", started["pid"])
    assert exited["status"] == status
    assert exited["time_ns"] >= started["time_ns"]


def test_a_command_that_is_not_there_is_refused(nursery: NurseryProcess) -> None:
    refused = start(nursery, "/no/such/program")
    assert refused["report"] == "refused"
    assert "cannot start /no/such/program" in refused["error"]
    assert "No such file or directory" in refused["error"]


def test_a_missing_directory_is_refused(nursery: NurseryProcess) -> None:
    refused = start(nursery, "true", cwd="/no/such/directory")
    assert "/no/such/directory" in refused["error"]


def test_a_worker_has_a_session_and_environment_of_its_own(
    nursery: NurseryProcess, fifo: Fifo
) -> None:
    code = f"""if True:
        import os, signal
        defaults = signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        with open({fifo.path!r}, "w") as out:
            own = os.getsid(0) == os.getpid()
            print(own, defaults, len(blocked), ascii(os.environ["MARK"]), os.getcwd(), file=out)
        """
    start(nursery, sys.executable, "-c", code, env={"MARK": "\u00e4\udcff"}, cwd="/usr")
    assert fifo.line() == r"True True 0 '\xe4\udcff' /usr"


def test_a_worker_inherits_no_descriptor(nursery: NurseryProcess, fifo: Fifo) -> None:
    code = (
        f"import os; fds = os.listdir('/proc/self/fd'); print(*fds, file=open({fifo.path!r}, 'w'))"
    )
    start(nursery, sys.executable, "-c", code)
    assert sorted(fifo.line().split()) == ["0", "1", "2", "3"]  # 3 is the listing's own


def test_signals_go_to_the_whole_group(nursery: NurseryProcess, fifo: Fifo) -> None:
    script = f"sleep 600 & echo $$ $! > {fifo.path}; wait"
    start(nursery, "sh", "-c", script)
    pids = fifo.pids(1)
    nursery.kill(WORKER, signal.SIGTERM)
    assert report(nursery)["status"] == signal.SIGTERM
    assert_gone(*pids)


def test_a_signal_for_nobody_is_ignored(nursery: NurseryProcess) -> None:
    nursery.kill("nobody", signal.SIGKILL)
    assert start(nursery, "/no/such/program")["report"] == "refused"


def test_what_a_dead_worker_leaves_behind_is_killed(nursery: NurseryProcess, fifo: Fifo) -> None:
    start(nursery, "sleep", "600", name="hook")
    worker = start(nursery, sys.executable, "-c", FAMILY, fifo.path)["pid"]
    family = fifo.pids(2)
    assert worker in family
    os.kill(worker, signal.SIGKILL)
    assert report(nursery)["status"] == signal.SIGKILL
    assert_gone(*family)
    # Only the worker's own are killed, and the next worker finds everything clear.
    assert start(nursery, "sleep", "600")["report"] == "started"
    children = psutil.Process(nursery.pid).children(recursive=True)
    assert sorted(child.name() for child in children) == ["sleep", "sleep"]


def test_the_end_takes_everything_along(nursery: NurseryProcess, fifo: Fifo) -> None:
    start(nursery, sys.executable, "-c", FAMILY, fifo.path)
    family = fifo.pids(2)
    assert nursery.end(TIMEOUT_SECONDS)
    assert_gone(*family, nursery.pid)


def test_the_worker_dies_with_the_nursery(nursery: NurseryProcess) -> None:
    worker = start(nursery, "sleep", "600")["pid"]
    os.kill(nursery.pid, signal.SIGKILL)
    assert_gone(worker)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_when_the_agent_is_killed_no_process_and_no_file_is_left(
    fifo: Fifo, tmp_path: Path, number: signal.Signals
) -> None:
    agent = subprocess.Popen(
        [sys.executable, "-c", AGENT, fifo.path, str(tmp_path), FAMILY], start_new_session=True
    )
    family = fifo.pids(3)  # the worker's two lines and the hook's
    nursery = psutil.Process(agent.pid).children()[0].pid
    os.killpg(agent.pid, number)
    agent.wait(TIMEOUT_SECONDS)
    assert_gone(*family, nursery)
    assert os.listdir(jobdir.user_path(str(tmp_path))) == []


def test_an_agent_that_waits_too_long_is_killed_and_its_mpi_files_removed() -> None:
    mpi_file = Path(f"/dev/shm/Intel_MPI_test_{os.getpid()}")
    agent = subprocess.run(
        [sys.executable, "-c", STUCK, str(mpi_file)],
        stderr=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert (agent.returncode, agent.stderr) == (-signal.SIGKILL, "hvdft: waited for others\n")
    assert not mpi_file.exists()


def test_the_nursery_leaves_the_job_to_others_that_are_in_it(tmp_path: Path) -> None:
    nursery = NurseryProcess.fork()
    directory = jobdir.JobDirectory.create(str(tmp_path), "job")
    nursery.watch_job(directory.path)
    assert nursery.end(TIMEOUT_SECONDS)
    assert os.path.isdir(directory.path)
    assert directory.leave()
