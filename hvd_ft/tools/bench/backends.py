"""The jobs that `hvdft bench` compares: all are started, then they take turns.

While a job waits for its turn, its workers are stopped (SIGSTOP), because those of stock Horovod
would poll. However the run ends, all workers are continued and then ended.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hvd_ft.errors import HvdFtError
from hvd_ft.installed.environment import check_environment
from hvd_ft.job.directory import new_job_id
from hvd_ft.job.processes import end_processes
from hvd_ft.mpi import leftover_files
from hvd_ft.mpi.environment import mpi_environment, mpiexec_command
from hvd_ft.system.channel import Channel, Message
from hvd_ft.system.peer_credentials import peer_of
from hvd_ft.system.stop_signals import raised_stop_signal
from hvd_ft.tools.driven_job import listen_at, start_job

START_LIMIT_SECONDS = 120.0
END_LIMIT_SECONDS = 45.0  # longer than hvdft run's own limits


def stock_environment() -> dict[str, str]:
    """Returns the environment of a stock Horovod job on MPI.

    It does not have the variables that hvdft sets for its agents, because stock Horovod is fastest
    with the defaults of Intel MPI.
    """
    environment = {**os.environ, **mpi_environment()}
    for name in [name for name in environment if name.startswith("I_MPI_")]:
        if name not in ("I_MPI_ROOT", "I_MPI_HYDRA_BOOTSTRAP"):
            del environment[name]
    return environment | {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "mpi"}


class Backend:
    """One backend's job, and the driver's connections to its workers.

    Args:
        name: `ft`; `gloo`, which MPI only starts; any other name is a job of stock Horovod.
        size: Number of ranks.
        scratch: Private directory for the socket and the job's output.
    """

    def __init__(self, name: str, size: int, scratch: Path) -> None:
        self.name = name
        self.size = size
        self._log = scratch / f"{name}.log"
        self._own = ["--gloo", str(scratch / "gloo.store")] if name == "gloo" else []
        self._address = str(scratch / f"{name}.socket")
        self._mark = new_job_id()  # in the environment of every process that stock mpiexec starts
        self._process: subprocess.Popen[bytes] | None = None
        self._workers: dict[int, tuple[Channel, int]] = {}  # by rank; the descriptor is a pidfd

    def start(self, module: str, arguments: Sequence[str], env: Mapping[str, str]) -> None:
        """Starts the job and waits until every rank has reported.

        Args:
            module: The worker's module, run with `python -m`; its first argument is the socket.
            arguments: Its further arguments.
            env: Environment variables on top of the usual ones.

        Raises:
            HvdFtError: The job does not start.
        """
        worker = [sys.executable, "-m", module, self._address, *self._own, *arguments]
        if self.name == "ft":
            environment = {**os.environ, **env}
            run = [sys.executable, "-m", "hvd_ft.cli", "run", "--no-live"]
            command = [*run, "-np", str(self.size), *worker]
        else:
            environment = {**stock_environment(), **env, "HOROVOD_FT_JOB": self._mark}
            command = [*mpiexec_command(self.size, environment), *worker]
        with socket.socket(socket.AF_UNIX) as listener, self._log.open("wb") as log:
            listen_at(listener, self._address, self.size)
            self._process = start_job(command, {"TF_CPP_MIN_LOG_LEVEL": "2", **environment}, log)
            self._await_workers(listener)

    def _await_workers(self, listener: socket.socket) -> None:
        deadline = time.monotonic() + START_LIMIT_SECONDS
        while len(self._workers) < self.size:
            self._await([listener], deadline, "started")
            end, _ = listener.accept()
            channel = Channel(end)
            pidfd = os.pidfd_open(peer_of(end).pid)
            # A worker has no rank until its hello arrives, but it has to be ended with the others.
            place = -1 - len(self._workers)
            self._workers[place] = (channel, pidfd)
            rank = self._receive({place}, deadline, "started")[place]["rank"]
            self._workers[rank] = self._workers.pop(place)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Lets the workers run in the `with` block."""
        self._signal(signal.SIGCONT)
        try:
            yield
        finally:
            self._signal(signal.SIGSTOP)

    def ask(self, request: Message, limit_seconds: float) -> list[dict[str, Any]]:
        """Sends every rank a request; returns their answers in the order of ranks.

        Raises:
            HvdFtError: A worker died, or has not answered within the limit.
        """
        for channel, _ in self._workers.values():
            try:
                channel.send(request)
            except OSError:
                raise self._error("a worker has died") from None
        deadline = time.monotonic() + limit_seconds
        answers = self._receive(set(self._workers), deadline, "answered")
        return [answers[rank] for rank in range(self.size)]

    def _receive(self, ranks: set[int], deadline: float, what: str) -> dict[int, Message]:
        answers: dict[int, Message] = {}
        while missing := ranks - answers.keys():
            waiting = {self._workers[rank][0].fileno(): rank for rank in missing}
            for descriptor in self._await(list(waiting), deadline, what):
                rank = waiting[descriptor]
                messages = self._workers[rank][0].receive()
                if messages is None:
                    raise self._error("a worker has died")
                if messages:
                    answers[rank] = messages[0]
        return answers

    def _await(self, files: Sequence[Any], deadline: float, what: str) -> list[Any]:
        """Waits until one of the files can be read; returns those that can."""
        assert self._process
        with selectors.DefaultSelector() as selector:
            ended = os.pidfd_open(self._process.pid)
            try:
                for file in (*files, ended):
                    selector.register(file, selectors.EVENT_READ)
                ready = [key.fileobj for key, _ in selector.select(deadline - time.monotonic())]
            finally:
                os.close(ended)
        if not ready:
            raise self._error(f"its workers have not {what} in time")
        if found := [file for file in ready if file != ended]:
            return found
        raise self._error(f"the job ended with code {self._process.wait()}")

    def finish(self) -> None:
        """Lets the job end by itself.

        Raises:
            HvdFtError: It does not end, or ends with an error.
        """
        assert self._process
        self._signal(signal.SIGCONT)
        for channel, _ in self._workers.values():
            with contextlib.suppress(OSError):
                channel.send({"do": "end"})
        try:
            code = self._process.wait(END_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            raise self._error(f"it has not ended within {END_LIMIT_SECONDS:.0f} s") from None
        if code != 0:
            raise self._error(f"the job ended with code {code}")

    def close(self) -> None:
        """Ends the remaining processes of the job, whether they are stopped or not."""
        self._signal(signal.SIGCONT)
        process = self._process
        if process and process.poll() is None:
            if self.name == "ft":  # hvdft run cleans up after itself; stock mpiexec may not
                process.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(END_LIMIT_SECONDS)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        end_processes(self._mark, patience_seconds=0)
        for channel, pidfd in self._workers.values():
            channel.close()
            os.close(pidfd)
        self._workers.clear()

    def _signal(self, number: signal.Signals) -> None:
        for _, pidfd in self._workers.values():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, number)

    def _error(self, reason: str) -> HvdFtError:
        lines = self._log.read_text(errors="replace").split("\n")
        last = [line.strip() for line in lines if line.strip()][-3:]
        said = "; its output ends with: " + " | ".join(last) if last else ""
        return HvdFtError(f"the {self.name} backend failed: {reason}{said}")


@contextlib.contextmanager
def started(
    names: Sequence[str],
    size: int,
    module: str,
    arguments: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Iterator[list[Backend]]:
    """Starts a job for every backend; at the end of the `with` block all have ended.

    Args:
        names: See `Backend`.
        size: Number of ranks.
        module: The module of the workers, see `Backend.start`.
        arguments: As for `Backend.start`.
        env: As for `Backend.start`.

    Yields:
        The backends, with their workers stopped: use them within `Backend.running`.

    Raises:
        HvdFtError: A requirement is absent, or a job failed.
    """
    check_environment()
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="hvdft-bench-"))
        stack.callback(leftover_files.sweep)
        stack.enter_context(raised_stop_signal())
        backends = []
        for name in names:
            backend = Backend(name, size, Path(scratch))
            stack.callback(backend.close)
            with backend.running():
                backend.start(module, arguments, env or {})
            backends.append(backend)
        yield backends
        for backend in backends:
            backend.finish()
