"""What many tests share: a place for arenas, and a command line that must leave nothing behind."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from hvd_ft import patching

# A shell starts what it runs in the background with SIGINT ignored; the tests send it.
for _number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)

_MARK = "HVD_FT_TEST_RUN"
_CLEARED_WITHIN_SECONDS = 10.0


@dataclass(frozen=True)
class Ended:
    """How a command line ended."""

    code: int
    out: str
    err: str


RunHvdft = Callable[..., Ended]


@pytest.fixture
def arena_dir() -> Iterator[Path]:
    """A fresh directory for arenas in shared memory, with a short path."""
    folder = Path(tempfile.mkdtemp(prefix="t-", dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def run_hvdft(arena_dir: Path) -> Iterator[RunHvdft]:
    """Gives a function `run_hvdft(arguments, timeout=60.0, env=None, program=None)`.

    It runs `hvdft`, or the command line `program` in its place, with a hard limit in seconds.
    Then it sees to it that no process that the command has started is left, nor a job directory.
    """
    marks: list[str] = []

    def run(
        arguments: list[str],
        timeout: float = 60.0,
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
