"""The shim with real processes. A fifo brings what they have to say, so nothing has to sleep."""

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

from hvd_ft.job import directory as jobdir
from hvd_ft.shim.children import CHECKPOINTS
from hvd_ft.shim.client import ShimClient
from hvd_ft.shim.messages import BeatHeard, Exited, Refused, Report, Started
from hvd_ft.shim.shim import WORKER
from hvd_ft.system.stop_signals import ASK_SIGNAL, END_SIGNAL

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
from hvd_ft.job.directory import JobDirectory
from hvd_ft.shim.client import ShimClient
from hvd_ft.shim.shim import WORKER
shim = ShimClient.fork()
directory = JobDirectory.create(sys.argv[2], "job")
shim.watch_job(directory.path)
shim.start(WORKER, [sys.executable, "-c", sys.argv[3], sys.argv[1]], dict(os.environ), "/")
shim.start("hook", ["sh", "-c", "echo $$ > " + sys.argv[1] + "; sleep 600"], {}, "/")
signal.pause()
"""

# An agent that waits for ever in MPI_Init, where Intel MPI has made a file for all to map.
STUCK = """
import mmap, os, signal, sys
from hvd_ft.shim.client import ShimClient
shim = ShimClient.fork()
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.truncate(file, 192)
mapped = mmap.mmap(file, 0)
shim.limit(60, "too early")
shim.unlimit()
shim.limit(0.1, "waited for others")
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
def shim() -> Iterator[ShimClient]:
    process = ShimClient.fork()
    yield process
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        process.end(TIMEOUT_SECONDS)


_come: dict[int, list[Report]] = {}  # and not yet asked for, by the shim's pid


def report(shim: ShimClient) -> Report:
    """Returns the next report."""
    reports = _come.setdefault(shim.pid, [])
    while not reports:
        ready, _, _ = select.select([shim.channel.fileno()], [], [], TIMEOUT_SECONDS)
        assert ready, "the shim reported nothing"
        received = shim.receive()
        assert received is not None, "the shim is gone"
        reports += received
    return reports.pop(0)


def start(
    shim: ShimClient,
    *argv: str,
    name: str = WORKER,
    env: dict[str, str] | None = None,
    cwd: str = "/",
) -> Report:
    shim.start(name, list(argv), {**os.environ, **(env or {})}, cwd)
    return report(shim)


def assert_gone(*pids: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            ended = select.select([descriptor], [], [], TIMEOUT_SECONDS)[0]
            os.close(descriptor)
            assert ended, f"process {pid} is left"


@pytest.mark.parametrize(
    ("ending", "status"), [("exit 0", 0), ("exit 7", 7 << 8), ("kill -9 $$", 9), ("kill $$", 15)]
)
def test_an_exit_is_reported_with_its_status(
    shim: ShimClient, fifo: Fifo, ending: str, status: int
) -> None:
    started = start(shim, "sh", "-c", f"read gate < {fifo.path}; {ending}")
    assert isinstance(started, Started)
    assert started.name == WORKER
    Path(fifo.path).write_text("go\n")
    exited = report(shim)
    assert isinstance(exited, Exited)
    assert exited.pid == started.pid
    assert exited.status == status
    assert exited.time_ns >= started.time_ns


@pytest.mark.parametrize(("number", "why"), [(9, "looked 2 times at {}"), (15, "")])
def test_why_a_worker_was_killed_is_reported(
    fifo: Fifo, monkeypatch: pytest.MonkeyPatch, number: int, why: str
) -> None:
    class Watch:
        def __init__(self, pid: int, _now: float) -> None:
            self.pid, self.looks = pid, 0

        def look(self) -> None:
            self.looks += 1

        def verdict(self) -> str:
            return f"looked {self.looks} times at {self.pid}"

    monkeypatch.setattr("hvd_ft.shim.children.OomWatch", Watch)
    shim = ShimClient.fork()
    try:
        shim.beat(None)  # while there is none to look at
        assert report(shim) == BeatHeard()
        for _ in range(2):  # the next one is looked at anew
            started = start(shim, "sh", "-c", f"read gate < {fifo.path}; kill -{number} $$")
            assert isinstance(started, Started)
            for _ in range(2):
                shim.beat(None)
                assert report(shim) == BeatHeard()
            Path(fifo.path).write_text("go\n")
            exited = report(shim)
            assert isinstance(exited, Exited)
            assert exited.why == why.format(started.pid)
    finally:
        shim.end(TIMEOUT_SECONDS)


def test_a_command_that_is_not_there_is_refused(shim: ShimClient) -> None:
    refused = start(shim, "/no/such/program")
    assert isinstance(refused, Refused)
    assert "cannot start /no/such/program" in refused.error
    assert "No such file or directory" in refused.error


def test_a_missing_directory_is_refused(shim: ShimClient) -> None:
    refused = start(shim, "true", cwd="/no/such/directory")
    assert "/no/such/directory" in refused.error


def test_a_worker_has_a_session_and_environment_of_its_own(shim: ShimClient, fifo: Fifo) -> None:
    code = f"""if True:
        import os, signal
        defaults = signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        with open({fifo.path!r}, "w") as out:
            own = os.getsid(0) == os.getpid()
            print(own, defaults, len(blocked), ascii(os.environ["MARK"]), os.getcwd(), file=out)
        """
    start(shim, sys.executable, "-c", code, env={"MARK": "\u00e4\udcff"}, cwd="/usr")
    assert fifo.line() == r"True True 0 '\xe4\udcff' /usr"


def test_a_worker_inherits_no_descriptor(shim: ShimClient, fifo: Fifo) -> None:
    code = (
        f"import os; fds = os.listdir('/proc/self/fd'); print(*fds, file=open({fifo.path!r}, 'w'))"
    )
    start(shim, sys.executable, "-c", code)
    assert sorted(fifo.line().split()) == ["0", "1", "2", "3"]  # 3 is the listing's own


def test_signals_go_to_the_whole_group(shim: ShimClient, fifo: Fifo) -> None:
    script = f"sleep 600 & echo $$ $! > {fifo.path}; wait"
    start(shim, "sh", "-c", script)
    pids = fifo.pids(1)
    shim.kill(WORKER, signal.SIGTERM)
    assert report(shim).status == signal.SIGTERM
    assert_gone(*pids)


def test_one_that_ends_by_a_signal_gets_it_when_it_can(shim: ShimClient, fifo: Fifo) -> None:
    """A checkpoint writer that is still importing must not die of it."""
    script = f"import signal; signal.sigwait([{ASK_SIGNAL:d}]); signal.sigwait([{END_SIGNAL:d}])"
    script += f"; open({fifo.path!r}, 'w').write('both\\n')"
    shim.start(CHECKPOINTS, [sys.executable, "-c", script], dict(os.environ), "/", end_seconds=60)
    assert isinstance(report(shim), Started)
    shim.signal(CHECKPOINTS, ASK_SIGNAL)
    assert shim.end(TIMEOUT_SECONDS)
    assert fifo.line() == "both"


def test_a_signal_for_nobody_is_ignored(shim: ShimClient) -> None:
    shim.kill("nobody", signal.SIGKILL)
    assert isinstance(start(shim, "/no/such/program"), Refused)


def test_what_a_dead_worker_leaves_behind_is_killed(shim: ShimClient, fifo: Fifo) -> None:
    start(shim, "sleep", "600", name="hook")
    worker = start(shim, sys.executable, "-c", FAMILY, fifo.path).pid
    family = fifo.pids(2)
    assert worker in family
    os.kill(worker, signal.SIGKILL)
    assert report(shim).status == signal.SIGKILL
    assert_gone(*family)
    # Only the worker's own are killed, and the next worker finds everything clear.
    assert isinstance(start(shim, "sleep", "600"), Started)
    children = psutil.Process(shim.pid).children(recursive=True)
    assert sorted(child.name() for child in children) == ["sleep", "sleep"]


def test_the_end_takes_everything_along(shim: ShimClient, fifo: Fifo) -> None:
    start(shim, sys.executable, "-c", FAMILY, fifo.path)
    family = fifo.pids(2)
    assert shim.end(TIMEOUT_SECONDS)
    assert_gone(*family, shim.pid)


def test_the_worker_dies_with_the_shim(shim: ShimClient) -> None:
    worker = start(shim, "sleep", "600").pid
    os.kill(shim.pid, signal.SIGKILL)
    assert_gone(worker)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_when_the_agent_is_killed_no_process_and_no_file_is_left(
    fifo: Fifo, tmp_path: Path, number: signal.Signals
) -> None:
    agent = subprocess.Popen(
        [sys.executable, "-c", AGENT, fifo.path, str(tmp_path), FAMILY], start_new_session=True
    )
    family = fifo.pids(3)  # the worker's two lines and the hook's
    shim = psutil.Process(agent.pid).children()[0].pid
    os.killpg(agent.pid, number)
    agent.wait(TIMEOUT_SECONDS)
    assert_gone(*family, shim)
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


def test_the_shim_leaves_the_job_to_others_that_are_in_it(tmp_path: Path) -> None:
    shim = ShimClient.fork()
    directory = jobdir.JobDirectory.create(str(tmp_path), "job")
    shim.watch_job(directory.path)
    assert shim.end(TIMEOUT_SECONDS)
    assert os.path.isdir(directory.path)
    assert directory.leave()
