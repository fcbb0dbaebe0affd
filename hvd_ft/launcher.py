"""Starts a job under Intel MPI, follows it, and leaves nothing behind when it ends."""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import IO, Protocol

from hvd_ft import jobdir, mpi_files
from hvd_ft.drills import check_ranks, parse
from hvd_ft.environment import check_environment, mpi_environment, mpiexec_command
from hvd_ft.errors import HvdFtError
from hvd_ft.job_processes import end_processes
from hvd_ft.native import View, die_with_parent
from hvd_ft.python_command import PythonCommand
from hvd_ft.settings import Settings
from hvd_ft.worker_start import check_command

TICK_SECONDS = 0.25
# Agents and nurseries have shorter limits of their own; these are for when they fail.
STOP_LIMIT_SECONDS = 20.0  # between asking a job to stop and killing mpirun
CLEAR_LIMIT_SECONDS = 15.0  # for nurseries to kill their workers and clear the job's files
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Job:
    """What to run.

    Attributes:
        size: Number of ranks.
        command: The worker's command line, such as `["python", "train.py"]`.
        on_failure: Shell command that the agent runs when its worker has died, or None.
        on_restart: Shell command that the agent runs when its worker is back, or None.
        report: File for the events of the run, one JSON object a line, or None.
        inject: Drills, such as `rank=2,step=30,signal=KILL`.
        spares: How many processes wait on the node, ready to become a worker.
        machine_file: File with the hosts and their slots, as mpirun takes it; None when all ranks
            are on this host.
        topology: `hierarchical` or `flat`; None: as the environment says.
        id: The job's id; its directory is named after it.
    """

    size: int
    command: Sequence[str]
    on_failure: str | None = None
    on_restart: str | None = None
    report: str | None = None
    inject: Sequence[str] = ()
    spares: int = 0
    machine_file: str | None = None
    topology: str | None = None
    id: str = field(default_factory=jobdir.new_job_id)


class Display(Protocol):
    """Shows a running job."""

    def update(self, view: View) -> None:
        """Is called about 4 times a second once the job's arena is there."""

    def output(self, line: str) -> None:
        """Is called with every line the job writes, if `takes_output` is true."""

    takes_output: bool


def launch(
    job: Job, display: Display | None = None, watch: Callable[[View], None] | None = None
) -> int:
    """Runs a job to its end.

    On SIGINT, SIGTERM and SIGHUP the job is asked to end; on a second one, or when it has not
    ended within 20 s, it is killed. Whatever happens, no process and no file of the job is
    left when this returns.

    Args:
        job: What to run.
        display: Shows the job while it runs.
        watch: Is called about 4 times a second with a view of the running job.

    Returns:
        The workers' exit code; 128 + the signal's number when a signal ended us or mpirun.

    Raises:
        HvdFtError: The job cannot be started.
    """
    check_job(job)
    arena_dir = Settings.from_env(os.environ).arena_dir
    for dead in jobdir.sweep_stale(arena_dir):
        print(f"hvdft: removed what the crashed job {dead} had left", file=sys.stderr)
    with _signals() as signals:
        run = _Run(job, arena_dir, signals)
        try:
            return run.follow(display, watch)
        finally:
            run.clear()


def check_job(job: Job) -> None:
    """Checks what can be checked of a job before anything is started.

    Args:
        job: What to run.

    Raises:
        HvdFtError: It cannot be run.
    """
    if job.size < 1:
        raise HvdFtError(f"-np {job.size}: a job has at least 1 rank; give -np 1 or more")
    check_ranks([parse(text) for text in job.inject], job.size)
    environment = job_environment(job)
    # The agents find the command by the job's PATH, in which this Python's programs come first.
    found = shutil.which(job.command[0], path=environment["PATH"]) if job.command else None
    check_command([found or job.command[0], *job.command[1:]] if job.command else [])
    if job.spares:
        PythonCommand.parse([found or job.command[0], *job.command[1:]])
    check_environment()
    Settings.from_env(os.environ).arena_limit_bytes()


def job_environment(job: Job) -> dict[str, str]:
    """Returns the whole environment in which mpirun and the agents of a job run."""
    environment = mpi_environment(one_host=job.machine_file is None)
    topology = {"HOROVOD_FT_TOPOLOGY": job.topology} if job.topology else {}
    return {**os.environ, **environment, **topology, "HOROVOD_FT_JOB": job.id}


def mpirun_command(job: Job, environment: Mapping[str, str]) -> list[str]:
    """Returns the command line that starts the agents of a job.

    Args:
        job: What to run.
        environment: The job's environment; Intel MPI is found by its PATH.

    Raises:
        HvdFtError: There is no Intel MPI.
    """
    command = mpiexec_command(job.size, environment)
    command += ["-machinefile", job.machine_file] if job.machine_file else []
    command += [sys.executable, "-m", "hvd_ft.agent"]
    for flag, value in (
        ("--on-failure", job.on_failure),
        ("--on-restart", job.on_restart),
        ("--report", job.report),
    ):
        if value is not None:
            command += [flag, value]
    for drill in job.inject:
        command += ["--inject", drill]
    if job.spares:
        command += ["--spares", str(job.spares)]
    return [*command, "--", *job.command]


@contextlib.contextmanager
def _signals() -> Iterator[tuple[list[int], int]]:
    """Collects stop signals in a list; the descriptor becomes readable with each."""
    received: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    old_descriptor = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    # A signal that is ignored, as by nohup, stays ignored.
    heeded = [number for number in STOP_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    old_handlers = {number: signal.signal(number, note) for number in heeded}
    try:
        yield received, reader
    finally:
        for number, handler in old_handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(old_descriptor)
        os.close(reader)
        os.close(writer)


class _Run:
    """One mpirun, from its start until nothing of it is left."""

    def __init__(
        self,
        job: Job,
        arena_dir: str,
        signals: tuple[list[int], int],
    ) -> None:
        self.job = job
        self.arena_dir = arena_dir
        self.directory = jobdir.job_path(arena_dir, job.id)
        self.received, self.signal_reader = signals
        self.mpirun: subprocess.Popen[bytes] | None = None
        self.view: View | None = None

    def follow(self, display: Display | None, watch: Callable[[View], None] | None) -> int:
        """Starts mpirun and handles everything until it has ended; returns the exit code."""
        output = subprocess.PIPE if display and display.takes_output else None
        environment = job_environment(self.job)
        self.mpirun = subprocess.Popen(
            mpirun_command(self.job, environment),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if output else None,
            start_new_session=True,  # Ctrl-C reaches us, and we end the job in order
            # So that the job ends even if we are killed; there is no other thread here.
            preexec_fn=die_with_parent,  # noqa: PLW1509
        )
        with selectors.DefaultSelector() as selector:
            ended = os.pidfd_open(self.mpirun.pid)
            try:
                selector.register(ended, selectors.EVENT_READ)
                selector.register(self.signal_reader, selectors.EVENT_READ)
                if self.mpirun.stdout:
                    selector.register(self.mpirun.stdout, selectors.EVENT_READ)
                self._loop(selector, display, watch)
            finally:
                os.close(ended)
        return self._exit_code(self.mpirun.wait())

    def _loop(
        self,
        selector: selectors.BaseSelector,
        display: Display | None,
        watch: Callable[[View], None] | None,
    ) -> None:
        assert self.mpirun
        lines = _Lines(self.mpirun.stdout, display)
        asked = 0
        deadline = float("inf")
        next_tick = 0.0
        while self.mpirun.poll() is None:
            for key, _ in selector.select(max(next_tick - time.monotonic(), 0)):
                if key.fd == self.signal_reader:
                    os.read(self.signal_reader, 64)
                elif key.fileobj is self.mpirun.stdout and not lines.pass_on():
                    selector.unregister(self.mpirun.stdout)
            if len(self.received) > asked:
                self._stop(again=asked > 0)
                asked += 1
                deadline = min(deadline, time.monotonic() + STOP_LIMIT_SECONDS)
            if time.monotonic() > deadline:
                self._kill()
            if time.monotonic() >= next_tick:
                next_tick = time.monotonic() + TICK_SECONDS
                self._tick(display, watch)
        lines.pass_on_the_rest()
        self._tick(display, None)

    def _tick(self, display: Display | None, watch: Callable[[View], None] | None) -> None:
        if self.view is None:
            # Not there yet, or not complete yet: the next tick looks again.
            with contextlib.suppress(HvdFtError):
                self.view = View(self.directory)
        if self.view and display:
            display.update(self.view)
        if self.view and watch:
            watch(self.view)

    def _stop(self, again: bool) -> None:
        assert self.mpirun
        if again:
            self._kill()
        else:
            # On SIGTERM mpirun would leave at once; on SIGINT it waits for the agents.
            self.mpirun.send_signal(signal.SIGINT)

    def _kill(self) -> None:
        """Kills what we started; nurseries see it and clear up after themselves."""
        assert self.mpirun
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.mpirun.pid, signal.SIGKILL)

    def _exit_code(self, code: int) -> int:
        if self.received:
            return 128 + self.received[0]
        if code < 0:
            name = signal.Signals(-code).name
            print(
                f"hvdft: mpirun was killed by {name}, so the job was ended; run it again",
                file=sys.stderr,
            )
            return 128 - code
        return code

    def clear(self) -> None:
        """Waits until every process of the job has ended, kills what has not, removes files."""
        if self.view:
            self.view.close()
        if self.mpirun is None:
            return
        if self.mpirun.poll() is None:
            self._kill()
            self.mpirun.wait()
        end_processes(self.job.id, CLEAR_LIMIT_SECONDS)
        jobdir.sweep_stale(self.arena_dir)
        mpi_files.sweep()


class _Lines:
    """Cuts a stream of bytes into lines for a display; without a stream it does nothing."""

    def __init__(self, stream: IO[bytes] | None, display: Display | None) -> None:
        self._stream = stream
        self._display = display
        self._rest = b""

    def pass_on(self) -> bool:
        """Reads what is there, or waits for it; returns whether there can be more."""
        assert self._stream and self._display
        data = os.read(self._stream.fileno(), 65536)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._display.output(line.decode(errors="replace").rstrip("\r"))
        return bool(data)

    def pass_on_the_rest(self) -> None:
        """Reads to the end, or as far as there is something: a stray process may hold the pipe."""
        if not self._stream or not self._display:
            return
        while select.select([self._stream], [], [], 0)[0] and self.pass_on():
            pass
        if self._rest:
            self._display.output(self._rest.decode(errors="replace"))
