"""The agent's side of its shim's life: first orders, heartbeats, replacement."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hvd_ft.agent.job_context import JobContext
from hvd_ft.job.beats import BEAT_SECONDS, Beats
from hvd_ft.job.failure_window import RecentFailures
from hvd_ft.job.host_key import host_key
from hvd_ft.job.launch import Launch
from hvd_ft.job.processes import end_rank
from hvd_ft.job.settings import Settings
from hvd_ft.mpi.variables import launch_sizes
from hvd_ft.shim.children import CHECKPOINTS, SPARES
from hvd_ft.shim.client import ShimClient
from hvd_ft.shim.messages import Attend
from hvd_ft.spares.spare_manager import manager_command
from hvd_ft.system.oom import OomWatch
from hvd_ft.system.reaper import kill_descendants


def watch_over(
    shim: ShimClient, settings: Settings, launch: Launch, rank: int, *, known: bool = False
) -> None:
    """Orders a new shim to watch the launcher and this agent.

    Args:
        shim: the new one.
        settings: the user's.
        launch: what the launcher has said.
        rank: of the agent.
        known: whether the launcher was reached before, by the shim that this one replaces.
    """
    shim.attend(
        Attend(
            rank,
            host_key(),
            launch.generation,
            launch.launcher,
            settings.lease_seconds,
            settings.host_timeout_seconds,
            launch.since(rank),
            launch.act_lease,
            known or launch.generation > 0,  # it was reached, as it has started this agent
            settings.output_prefix,
            _output_folder(settings, rank),
        )
    )


def _output_folder(settings: Settings, rank: int) -> str:
    """Returns the folder of a rank's output, named as horovodrun names it; "": there is none."""
    if settings.output_dir is None:
        return ""
    digits = len(str(max(launch_sizes(os.environ)[0] - 1, 0)))
    return f"{settings.output_dir}/rank.{rank:0{digits}}"


class ShimCare:
    """Keeps one shim alive while its agent's supervisor runs.

    Args:
        shim: the shim.
        context: this agent's place in the job.
        env: of the worker.
        command: of the worker.
        spares: how many warm spares this shim has to keep prepared.
        checkpoint_writer: command line of the node's checkpoint writer, if this shim has to have
            one.
        facts: returns the facts of this node for the launcher; called once a second.
        reap: reaps this process's dead children.
    """

    def __init__(
        self,
        shim: ShimClient,
        context: JobContext,
        *,
        env: Mapping[str, str],
        command: Sequence[str],
        spares: int,
        checkpoint_writer: Sequence[str] | None,
        facts: Callable[[], Any],
        reap: Callable[[], object],
    ) -> None:
        self._shim = shim
        self._context = context
        self._env = dict(env)
        self._command = command
        self._spares = spares
        self._writer = checkpoint_writer
        self._writer_deaths = RecentFailures(context.settings)
        self._facts = facts
        self._reap = reap
        self._answers = Beats(context.settings.lease_seconds)
        self._oom: OomWatch | None = OomWatch(shim.pid, time.monotonic())
        self._beat_at = 0.0
        self._launcher_known = False

    def begin(self) -> None:
        """Lets the shim outlive this agent from now on, because the job's files exist."""
        settings = self._context.settings
        if self._context.launch.launcher and self._shim.found is None:
            # Longer than the launcher waits for a lost host before starting new agents.
            self._shim.keep(settings.host_timeout_seconds + settings.adoption_timeout_seconds)
        running = self._shim.found.running if self._shim.found else ()
        if self._spares and SPARES not in running:
            argv = manager_command(self._spares, self._command)
            self._shim.start(SPARES, argv, self._env, self._context.arenas)
        if self._writer is not None:
            self._shim.end_seconds += settings.checkpoint_timeout_seconds
            if CHECKPOINTS not in running:
                self._start_writer(self._writer)
        self._answers.heard(time.monotonic())

    def _start_writer(self, command: Sequence[str]) -> None:
        seconds = self._context.settings.checkpoint_timeout_seconds
        self._shim.start(
            CHECKPOINTS, list(command), self._env, self._context.arenas, end_seconds=seconds
        )

    def writer_ended(self, why: str) -> str:
        """Starts the checkpoint writer again, unless it dies again and again.

        Args:
            why: how it ended.

        Returns:
            The line to print about it.
        """
        self._writer_deaths.add(time.monotonic())
        text = f"the checkpoint writer of rank {self._context.rank}'s node ended ({why})"
        if self._writer is None or self._writer_deaths.too_many():
            return f"{text}; there are no more checkpoints, and the job continues without"
        self._start_writer(self._writer)
        return f"{text}; another one takes its place"

    @property
    def look_at(self) -> float:
        """The time at which `look` has to be called, on the clock of time.monotonic()."""
        return self._beat_at

    def look(self) -> bool:
        """Sends this agent's heartbeat; returns whether the shim was silent, and so was killed."""
        now = time.monotonic()
        self._beat_at = now + BEAT_SECONDS
        if self._answers.is_silent(now):
            self._answers.stop()
            self._oom = None
            self._shim.kill_itself()
            return True
        if self._oom is not None:
            self._oom.look()
        self._shim.beat(self._facts())
        return False

    def answered(self, *, launcher_known: bool) -> None:
        """Notes the shim's heartbeat, and whether a shim has reached the launcher."""
        self._answers.heard(time.monotonic())
        self._launcher_known |= launcher_known

    def replace(self) -> str:
        """Starts another shim in place of a dead one, whose processes are all gone then.

        Returns:
            Why the dead shim was killed, if that was for lack of memory; otherwise "".

        Raises:
            HvdFtError: no other shim can be started.
        """
        lack = self._oom.verdict() if self._oom is not None else ""
        kill_descendants(self._reap)  # its orphans are re-parented to this process, …
        context = self._context
        end_rank(context.job, context.rank)  # … except a worker that was a spare
        self._shim.replace()
        self._oom = OomWatch(self._shim.pid, time.monotonic())
        known = self._launcher_known
        watch_over(self._shim, context.settings, context.launch, context.rank, known=known)
        self._shim.watch_job(context.directory)
        self.begin()
        return f"its shim was {lack}" if lack else ""
