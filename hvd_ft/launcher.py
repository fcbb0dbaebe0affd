"""Starts a job under Intel MPI, follows it, and leaves nothing behind when it ends."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hvd_ft import jobdir, mpi_files
from hvd_ft.drills import check_ranks, parse
from hvd_ft.environment import check_environment, mpi_environment, mpiexec_command
from hvd_ft.errors import HvdFtError
from hvd_ft.generations import Again, GenerationPolicy, NotYet, Over, agents_late, agents_lost
from hvd_ft.job_processes import end_processes
from hvd_ft.lifeline import LifeLines
from hvd_ft.native import View, die_with_parent
from hvd_ft.output_lines import OutputLines
from hvd_ft.peers import PeerFile
from hvd_ft.python_command import PythonCommand
from hvd_ft.settings import Settings
from hvd_ft.stop_signals import StopSignals, stop_signals
from hvd_ft.worker_start import check_command

TICK_SECONDS = 0.25
# Agents and nurseries have shorter limits of their own; these are for when they fail.
STOP_LIMIT_SECONDS = 20.0  # between asking a job to stop and killing mpirun
CLEAR_LIMIT_SECONDS = 15.0  # for nurseries to kill their workers and clear the job's files
# When an agent has died Hydra mostly ends all others, and itself, at once.
HYDRA_LIMIT_SECONDS = 0.5
STARTS_IN_ADOPTION = 3  # so many attempts to start agents, while nurseries wait for one
HEAR_LIMIT_SECONDS = 5.0  # for nurseries to say that they have lost their agents
_NEVER = float("inf")


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

    When agents, or mpirun, have died before the job has ended, agents of a new generation are
    started, which take over what those have left.

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
    with stop_signals() as signals:
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


class _Run:
    """A job, from its first mpirun until nothing of it is left."""

    def __init__(
        self,
        job: Job,
        arena_dir: str,
        signals: StopSignals,
    ) -> None:
        self.job = job
        self.arena_dir = arena_dir
        self.directory = jobdir.job_path(arena_dir, job.id)
        self.signals = signals
        self.lifelines = LifeLines(one_host=job.machine_file is None)
        settings = Settings.from_env(os.environ)
        self.policy = GenerationPolicy(settings)
        self.shared_dir = settings.shared_dir
        self.start_limit = settings.adoption_timeout_seconds / STARTS_IN_ADOPTION
        self.mpirun: subprocess.Popen[bytes] | None = None
        self.view: View | None = None
        self._asked = 0  # signals that have been heeded
        self._deadline = _NEVER  # time.monotonic()'s, when mpirun is killed

    def follow(self, display: Display | None, watch: Callable[[View], None] | None) -> int:
        """Starts generations of agents until the job has ended; returns the exit code."""
        generation = 0
        while True:
            code = self._run_generation(generation, display, watch)
            verdict = self._judge()
            if isinstance(verdict, Over):
                if verdict.message:
                    print(f"hvdft: {verdict.message}", file=sys.stderr)
                return self._exit_code(code)
            generation += 1
            print(
                f"hvdft: mpirun ended ({_describe(code)}) before the job; "
                f"starting generation {generation} of its agents",
                file=sys.stderr,
                flush=True,
            )

    def _run_generation(
        self,
        generation: int,
        display: Display | None,
        watch: Callable[[View], None] | None,
    ) -> int:
        """Runs mpirun to its end; returns its exit code."""
        output = subprocess.PIPE if display and display.takes_output else None
        environment = {
            **job_environment(self.job),
            "HOROVOD_FT_LAUNCHER": self.lifelines.address,
            "HOROVOD_FT_GENERATION": str(generation),
        }
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
                selector.register(self.signals, selectors.EVENT_READ)
                selector.register(self.lifelines, selectors.EVENT_READ)
                if self.mpirun.stdout:
                    selector.register(self.mpirun.stdout, selectors.EVENT_READ)
                self._loop(selector, generation, display, watch)
            finally:
                os.close(ended)
        return self.mpirun.wait()

    def _loop(
        self,
        selector: selectors.BaseSelector,
        generation: int,
        display: Display | None,
        watch: Callable[[View], None] | None,
    ) -> None:
        assert self.mpirun
        lines = OutputLines(self.mpirun.stdout, display)
        self._deadline = _NEVER
        late_at = time.monotonic() + self.start_limit
        next_tick = 0.0
        while self.mpirun.poll() is None:
            for key, _ in selector.select(max(next_tick - time.monotonic(), 0)):
                if key.fileobj is self.lifelines:
                    self.lifelines.serve()
                elif key.fileobj is self.mpirun.stdout and not lines.pass_on():
                    selector.unregister(self.mpirun.stdout)
            if len(self.signals.received) > self._asked:
                self._stop(again=self._asked > 0)
                self._asked += 1
                self._end_by(STOP_LIMIT_SECONDS)
            if agents_lost(self.lifelines.holders, generation):
                self._end_by(HYDRA_LIMIT_SECONDS)
            if time.monotonic() > late_at and agents_late(self.lifelines.holders, generation):
                self._kill()
            if time.monotonic() > self._deadline:
                self._kill()
            if time.monotonic() >= next_tick:
                next_tick = time.monotonic() + TICK_SECONDS
                self._tick(display, watch)
        lines.pass_on_the_rest()
        self._tick(display, None)

    def _judge(self) -> Again | Over:
        """Finds out whether the job has ended with its mpirun."""
        deadline = time.monotonic() + HEAR_LIMIT_SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(self.lifelines, selectors.EVENT_READ)
            while True:
                self.lifelines.serve()
                verdict = self.policy.ended(
                    self.lifelines.holders, bool(self.signals.received), time.monotonic()
                )
                if not isinstance(verdict, NotYet):
                    return verdict
                left = deadline - time.monotonic()
                if left <= 0:
                    return Over("the job's agents live on without their mpirun; the job was ended")
                selector.select(left)

    def _tick(self, display: Display | None, watch: Callable[[View], None] | None) -> None:
        if self.view is None:
            # Not there yet, or not complete yet: the next tick looks again.
            with contextlib.suppress(HvdFtError):
                self.view = View(self.directory)
        if self.view and display:
            display.update(self.view)
        if self.view and watch:
            watch(self.view)

    def _end_by(self, seconds: float) -> None:
        self._deadline = min(self._deadline, time.monotonic() + seconds)

    def _stop(self, again: bool) -> None:
        assert self.mpirun
        if again:
            self._kill()
        else:
            # On SIGTERM mpirun would leave at once; on SIGINT it waits for the agents.
            self.mpirun.send_signal(signal.SIGINT)

    def _kill(self) -> None:
        """Kills what we started; nurseries see it."""
        assert self.mpirun
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.mpirun.pid, signal.SIGKILL)

    def _exit_code(self, code: int) -> int:
        if self.signals.received:
            return 128 + self.signals.received[0]
        if self.lifelines.exit_code is not None:
            return self.lifelines.exit_code
        if code < 0:
            print(
                f"hvdft: mpirun was killed by {signal.Signals(-code).name}, so the job was ended; "
                "run it again",
                file=sys.stderr,
            )
            return 128 - code
        return code

    def clear(self) -> None:
        """Waits until every process of the job has ended, kills what has not, removes files."""
        if self.view:
            self.view.close()
        if self.mpirun is not None and self.mpirun.poll() is None:
            self._kill()
            self.mpirun.wait()
        self.lifelines.close()  # nurseries that wait for agents end, on all nodes
        if self.mpirun is None:
            return
        end_processes(self.job.id, CLEAR_LIMIT_SECONDS)
        if self.shared_dir:
            PeerFile(self.shared_dir, self.job.id).remove()
        jobdir.sweep_stale(self.arena_dir)
        mpi_files.sweep()


def _describe(code: int) -> str:
    return f"signal {-code}, {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
