"""One mpirun after the other: each is started, followed to its end, and killed if it must be."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from hvd_ft.mpi.hydra_output import MpirunOutput
from hvd_ft.native.core import die_with_parent
from hvd_ft.system.event_loop import EventLoop


class Mpirun:
    """The mpirun of a job's present generation of agents.

    Args:
        loop: Hears of its end.
        output: Takes what it prints.

    Attributes:
        has_ended: Whether the latest one has ended, and nobody has called `wait` yet.
    """

    def __init__(self, loop: EventLoop, output: MpirunOutput) -> None:
        self._loop = loop
        self._output = output
        self._process: subprocess.Popen[bytes] | None = None
        self.has_ended = False

    @property
    def was_started(self) -> bool:
        """Whether there has been one."""
        return self._process is not None

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Starts another one.

        Args:
            command: Its command line.
            environment: All of its environment.
        """
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._output.stderr,
            start_new_session=True,  # Ctrl-C reaches us, and we end the job in order
            # The job ends even if this process is killed. A thread that waits for a shared
            # directory (job_leader.py) has no lock that this needs.
            preexec_fn=die_with_parent,  # noqa: PLW1509
        )
        self._output.attach(self._process)
        ended = os.pidfd_open(self._process.pid)

        def on_end() -> None:
            watch.end()
            os.close(ended)
            self.has_ended = True

        watch = self._loop.watch(ended, on_end)

    def wait(self) -> int:
        """Takes the rest of its output, and returns its exit code, once it has ended."""
        assert self._process
        self.has_ended = False
        self._output.finish()
        return self._process.wait()

    @property
    def pid(self) -> int:
        """The process id of the one that runs; 0: none does."""
        return self._process.pid if self._process is not None and self.runs else 0

    def stopped(self) -> list[int]:
        """Returns those of it, and of its own processes on this host, that a signal has stopped."""
        if not self.pid:
            return []
        return [pid for pid in (self.pid, *_children(self.pid)) if _is_stopped(pid)]

    def let_continue(self) -> None:
        """Has those of it continue that a signal has stopped."""
        for pid in self.stopped():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kills it; shims notice."""
        if self._process is None or not self.runs:
            return
        with contextlib.suppress(psutil.Error):
            # Such as the ssh to a silent host, which would not notice.
            for child in psutil.Process(self._process.pid).children():
                child.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kills it, and waits until it is gone."""
        self.kill()
        if self._process is not None:
            self._process.wait()


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    return []


def _is_stopped(pid: int) -> bool:
    """Returns whether a signal has stopped a process; a debugger that has is left alone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    return False
