"""What goes on beside a training: processes of it are killed, and its memory is measured."""

import contextlib
import signal
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

from experiments.sides import pids

MARK = "HVDFT_EXPERIMENT"  # a variable in the environment of all processes of a training
SAMPLE_SECONDS = 1.0


class Killer:
    """Kills a process of a training at regular intervals, in the `with` block.

    Args:
        every: Seconds; 0: never.
        folder: Into which the processes write: see train_digits.py.

    Attributes:
        kills: When, CLOCK_MONOTONIC, in ns.
    """

    def __init__(self, every: float, folder: Path) -> None:
        self.kills: list[int] = []
        self._every = every
        self._folder = folder
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Killer":
        if self._every:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._every:
            self._thread.join()

    def _run(self) -> None:
        begin, number = time.monotonic(), 1
        while not self._over.wait(begin + number * self._every - time.monotonic()):
            with contextlib.suppress(psutil.Error):
                # By age, so that on each side the same ones are struck.
                if alive := sorted(_alive(pids(self._folder)), key=psutil.Process.create_time):
                    at = time.monotonic_ns()
                    alive[number % len(alive)].send_signal(signal.SIGKILL)
                    self.kills.append(at)
            number += 1


def _alive(pids: Iterable[int]) -> Iterator[psutil.Process]:
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                yield process


class MemoryOverTime:
    """Measures the memory of all processes of a training, in the `with` block.

    Attributes:
        environment: What to add to their environment, by which they are found.
        samples: Seconds since the beginning, and MiB. Shared memory is divided equally among the
            processes that share it (PSS), so it counts once.
    """

    def __init__(self) -> None:
        self.environment = {MARK: uuid.uuid4().hex}
        self.samples: list[tuple[float, float]] = []
        self._ours: dict[int, bool] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "MemoryOverTime":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        begin = time.monotonic()
        while not self._over.wait(SAMPLE_SECONDS):
            now = set(psutil.pids())
            self._ours = {pid: ours for pid, ours in self._ours.items() if pid in now}
            found = sum(_pss_bytes(pid) for pid in now if self._is_ours(pid))
            self.samples.append((round(time.monotonic() - begin, 2), round(found / 2**20, 1)))

    def _is_ours(self, pid: int) -> bool:
        if self._ours.get(pid) is None:
            wanted = f"{MARK}={self.environment[MARK]}".encode()
            with contextlib.suppress(OSError):
                environ = Path(f"/proc/{pid}/environ").read_bytes()
                # One that is between fork and exec has its parent's: it is looked at again.
                self._ours[pid] = wanted in environ.split(b"\0")
        return self._ours.get(pid, False)


def _pss_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0
