"""What many tests share: a place for arenas, and a command line that must leave nothing behind."""

import contextlib
import fcntl
import gc
import importlib.util
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import psutil
import pytest
from selection import PART_MINUTES, SLICES, drawn, kept, part, slice_by, starts_jobs

from hvd_ft.errors import HvdFtError
from hvd_ft.tools.cluster import tools
from hvd_ft.tools.cluster.plan import Plan
from hvd_ft.tools.install import patching

ROOT = Path(__file__).resolve().parents[1]
# What takes so long hangs, on however busy a machine; less than pytest's own limit.
HANG_SECONDS = 600.0
TORCH_IS_THERE = importlib.util.find_spec("torch") is not None
# Lightning and Accelerate; needed by the files that are named so.
CLIENTS = ("lightning", "accelerate")
CLIENTS_ARE_THERE = TORCH_IS_THERE and all(map(importlib.util.find_spec, CLIENTS))
SCRIPTS = ROOT / "tests" / "jobs" / "scripts"  # training scripts of tests

# A shell starts what it runs in the background with SIGINT ignored; the tests send it.
for _number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)

# What is started by the tests imports TensorFlow in less time (see there), and without setuptools.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(Path(__file__).parent / "startup"), *filter(None, [os.environ.get("PYTHONPATH")])]
)
os.environ["SETUPTOOLS_USE_DISTUTILS"] = "stdlib"
# Tests compare what ranks print; those of the marks before their lines set this anew.
os.environ["HOROVOD_FT_OUTPUT_PREFIX"] = "none"

_MARK = "HVD_FT_TEST_RUN"
_CLEARED_WITHIN_SECONDS = 10.0


@dataclass(frozen=True)
class Ended:
    """How a command line ended."""

    code: int
    out: str
    err: str


RunHvdft = Callable[..., Ended]


@dataclass(frozen=True)
class Part:
    """What this run takes, as its commit has it.

    Attributes:
        number: of its slice; 0: all that is selected.
        commit: the commit.
        minutes: after which it begins no other test.
        over_at: when that is.
    """

    number: int
    commit: str
    minutes: float
    over_at: float

    def describe(self) -> str:
        """Returns which part it is, and how to repeat it."""
        commit = self.commit[:12]
        if self.number:
            return (
                f"part {self.number} of {SLICES}, at {commit}; again: make part SLICE={self.number}"
            )
        return f"as {commit} draws it, for {self.minutes:g} minutes"


_PART = pytest.StashKey[Part]()


_OF_A_FRAMEWORK = re.compile(
    r"^(?:import|from) (?:tensorflow|keras|torch|horovod|hvd_ft\.(?:tensorflow|torch))\b",
    re.MULTILINE,
)


# Every run looks at the same cases, however slow the machine is.
hypothesis.settings.register_profile(
    "same",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("same")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--quick`, `--short`, `--promises`, `--part` and `--minutes`."""
    parser.addoption(
        "--quick", action="store_true", help="only tests that need neither a job nor TensorFlow"
    )
    parser.addoption(
        "--short",
        action="store_true",
        help="of those that start jobs only what shows a promise, and does it soon",
    )
    parser.addoption(
        "--promises", action="store_true", help="only what shows a promise, and takes longer"
    )
    parser.addoption(
        "--part",
        metavar="N|commit",
        help=f"slice N of 1 to {SLICES} of what neither --short nor --promises runs, or that of "
        f"the commit; after {PART_MINUTES} minutes, or --minutes, no other test begins",
    )
    parser.addoption(
        "--minutes",
        type=float,
        help="without --part, the selected tests in an order that the commit draws; after so many "
        "minutes no other one begins",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Determines what `--part` or `--minutes` take: the same in each of pytest's processes."""
    given, minutes = config.getoption("part"), config.getoption("minutes")
    if given is None and minutes is None:
        return
    commit = _commit()
    if given is None:
        config.stash[_PART] = Part(0, commit, minutes, time.monotonic() + minutes * 60)
        return
    number = str(slice_by(commit)) if given == "commit" else given
    if number not in map(str, range(1, SLICES + 1)):
        raise pytest.UsageError(f"--part {given}: give 1 to {SLICES}, or commit")
    minutes = PART_MINUTES if minutes is None else minutes
    config.stash[_PART] = Part(int(number), commit, minutes, time.monotonic() + minutes * 60)


def _commit() -> str:
    git = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    done = subprocess.run(git, check=False, capture_output=True, text=True)
    if done.returncode:
        raise pytest.UsageError(f"tests go by the commit, and git says: {done.stderr.strip()}")
    return done.stdout.strip()


def pytest_report_header(config: pytest.Config) -> str | None:
    """Says which part of the tests this run takes."""
    chosen = config.stash.get(_PART, None)
    return None if chosen is None else chosen.describe()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begins no test of a part when its time is over."""
    chosen = item.config.stash.get(_PART, None)
    if chosen is not None and time.monotonic() > chosen.over_at:
        pytest.skip(f"not begun: the {chosen.minutes:g} minutes of this part are over")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out what needs PyTorch where it is absent, and for `--quick` what imports a framework.

    The import takes seconds by itself. `tests/pytorch/test_installed.py` counts the files.
    """
    if collection_path.suffix != ".py":
        return None
    if needs_torch(collection_path) and not TORCH_IS_THERE:
        return True
    if needs_clients(collection_path) and not CLIENTS_ARE_THERE:
        return True
    if not config.getoption("quick"):
        return None
    return bool(_OF_A_FRAMEWORK.search(collection_path.read_text())) or None


def needs_torch(path: Path) -> bool:
    """Returns whether a file of tests needs PyTorch: by its folder, or its name among the jobs."""
    of_jobs = path.name.startswith("test_torch_")
    return of_jobs or (path.parent.name == "pytorch" and path.name != "test_installed.py")


def needs_clients(path: Path) -> bool:
    """Returns whether a file of tests needs Lightning or Accelerate, by its name."""
    return path.name.startswith("test_torch_") and any(name in path.name for name in CLIENTS)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what starts jobs, for `--quick`; for `--short` and `--promises` all but those."""
    quick, short, promises = map(config.getoption, ("quick", "short", "promises"))
    its = config.stash.get(_PART, None)
    if its is not None and its.number:
        chosen = part(items, its.number, its.commit)
    elif quick or short or promises:
        chosen = kept(items, quick=quick, promises=promises)
        chosen = _dealt(chosen) if its is None else drawn(chosen, its.commit)
    elif its is not None:
        chosen = drawn(items, its.commit)
    else:
        return
    config.hook.pytest_deselected(items=[item for item in items if item not in {*chosen}])
    items[:] = chosen


def _dealt(items: list[pytest.Item]) -> list[pytest.Item]:
    """Deals tests that start jobs out evenly between the others.

    They take most of the time, and each of pytest's processes begins with a row of tests.
    """
    groups = [[item for item in items if starts_jobs(item) is jobs] for jobs in (True, False)]
    places = [(at / len(group), item) for group in groups for at, item in enumerate(group)]
    return [item for _, item in sorted(places, key=lambda place: place[0])]


def pytest_collection_finish() -> None:
    """Keeps full collections of garbage short: what is imported by now stays."""
    gc.freeze()


Once = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """Gives a function `once(name, make)` that returns a folder.

    `make(folder)` fills it: once, whichever of pytest's processes asks first; the others wait.
    """
    mine = tmp_path_factory.getbasetemp()
    above = mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine

    def once(name: str, make: Callable[[Path], object]) -> Path:
        folder = above / name
        with (above / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                unfinished = above / f"{name}.unfinished"
                shutil.rmtree(unfinished, ignore_errors=True)
                unfinished.mkdir()
                make(unfinished)
                unfinished.rename(folder)
        return folder

    return once


Device = Callable[[str], str]
_MINORS = {"null": 3, "zero": 5, "full": 7}  # of major 1


@pytest.fixture
def device(tmp_path: Path) -> Device:
    """Gives a function that returns the path of a device: null, zero or full.

    Root gets one of its own: a fault could put a regular file in the place of the machine's.
    """

    def make(name: str) -> str:
        if os.geteuid() != 0:
            return f"/dev/{name}"
        path = tmp_path / name
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, _MINORS[name]))
            path.open("rb").close()
        except OSError as error:
            pytest.skip(f"there can be no device in {tmp_path}: {error.strerror}")
        return str(path)

    return make


@pytest.fixture
def arena_dir() -> Iterator[Path]:
    """A fresh directory for arenas in shared memory, with a short path."""
    folder = Path(tempfile.mkdtemp(prefix="t-", dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def run_hvdft(arena_dir: Path) -> Iterator[RunHvdft]:
    """Gives a function `run_hvdft(arguments, timeout=HANG_SECONDS, env=None, program=None)`.

    It runs `hvdft`, or the command line `program` in its place, with a hard limit in seconds: only
    what hangs meets it, even on a machine that is busy with other things.
    Then it sees to it that no process that the command has started is left, nor a job directory.
    """
    marks: list[str] = []

    def run(
        arguments: list[str],
        timeout: float = HANG_SECONDS,
        env: dict[str, str] | None = None,
        program: list[str] | None = None,
    ) -> Ended:
        mark = uuid.uuid4().hex
        marks.append(mark)
        command = [*(program or [sys.executable, "-m", "hvd_ft.cli"]), *arguments]
        environment = {
            **os.environ,
            "HOROVOD_FT_ARENA_DIR": str(arena_dir),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            **(env or {}),
            _MARK: mark,
        }
        with subprocess.Popen(
            command,
            env=environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                _kill(_processes(mark))
                out, err = process.communicate()
                pytest.fail(f"{arguments} took longer than {timeout} s\n{out}\n{err}")
        _, left = psutil.wait_procs(_processes(mark), timeout=_CLEARED_WITHIN_SECONDS)
        assert not left, f"processes of {arguments} are left: {left}\n{out}\n{err}"
        assert not list(arena_dir.glob("*/*/")), f"a job directory is left\n{out}\n{err}"
        return Ended(process.returncode, out, err)

    yield run
    for mark in marks:
        _kill(_processes(mark))


@pytest.fixture
def patched_estimator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a patched copy of tensorflow_estimator; it stands first in this path."""
    tensorflow_estimator = pytest.importorskip("tensorflow_estimator")
    folder = tmp_path / "site"
    package = Path(tensorflow_estimator.__file__).parent
    ignored = shutil.ignore_patterns("__pycache__")
    for source in (package, *package.parent.glob(f"{patching.PACKAGE}-*.dist-info")):
        shutil.copytree(source, folder / source.name, ignore=ignored)
    monkeypatch.syspath_prepend(str(folder))
    patching.InstalledPackage().apply()
    return folder


def _processes(mark: str) -> list[psutil.Process]:
    """Finds the processes of a run by what they have inherited in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(_MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


@dataclass(frozen=True)
class Cluster:
    """A cluster on this machine that is up, or was."""

    name: str

    def hvdft(
        self, command: str, *arguments: str, timeout: float = HANG_SECONDS, before: str = ""
    ) -> Ended:
        """Runs `hvdft cluster COMMAND` on this cluster, with a hard limit in seconds."""
        program = [sys.executable, "-m", "hvd_ft.cli", "cluster", command, "--name", self.name]
        shell = ["sh", "-c", f'{before} exec "$@"', "sh"] if before else []
        done = subprocess.run(
            [*shell, *program, *arguments],
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=timeout,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def sh(self, node: str, script: str, timeout: float = HANG_SECONDS) -> str:
        """Runs a shell script on a node, which must succeed; returns what it prints."""
        ended = self.hvdft("exec", node, "sh", "-ec", script, timeout=timeout)
        assert ended.code == 0, ended
        return ended.out


@contextlib.contextmanager
def running_cluster(*flags: str, before: str = "") -> Iterator[Cluster]:
    """A cluster with these flags of `hvdft cluster up`; skips where there can be none.

    Args:
        flags: Flags.
        before: Shell commands that run first.
    """
    try:
        tools.check(Plan())
    except HvdFtError as error:
        pytest.skip(f"there can be no cluster here: {error}")
    cluster = Cluster(f"test-{uuid.uuid4().hex[:8]}")
    ended = cluster.hvdft("up", *flags, before=before)
    try:
        assert ended.code == 0, ended
        yield cluster
    finally:
        cluster.hvdft("down")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three nodes with unlimited links."""
    with running_cluster() as running:
        yield running
