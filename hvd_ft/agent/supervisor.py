"""The state machine that decides what an agent does about its rank's worker. Pure.

Events come in, actions go out. restart_policy.py has the rules of a restart, adopted_worker.py
those of a takeover. This machine knows which incarnation runs, and what has to happen by when.
supervisor_loop.py waits for the events and carries out the actions in order; its contract is in
docs/internals/driver.md.

| event | while | actions |
|---|---|---|
| begin | | start incarnation 0 |
| worker started | | publish its pid; a spare may begin |
| worker refused | | stop the job, code 127 |
| worker ended well | | publish that the rank is done |
| worker died | within the limits | publish it, run on-failure, start the next incarnation |
| worker died | beyond the limits | publish it, run on-failure, stop the job |
| worker rejoined | it was restarted | run on-restart |
| shim died | the job continues | start another shim, then as if the worker had been killed |
| worker is stuck | | SIGKILL |
| user's Ctrl-C | the worker has called hvd.init() | SIGINT |
| not back in time | it is restarting or replaying | stop the job |
| job over | the worker runs | SIGTERM, after the user's grace; SIGKILL 3 s later |
"""

import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hvd_ft.agent.actions import (
    Action,
    BeginWorker,
    NoteCause,
    NoteDone,
    NoteFailed,
    NoteStarted,
    ReplaceShim,
    RunHook,
    Say,
    SayWhyStopped,
    SignalWorker,
    StartWorker,
    StopJob,
    WatchWorker,
)
from hvd_ft.agent.adopted_worker import GoesOn, HasEnded, IsDone, ToStart
from hvd_ft.agent.hang_rule import Stuck
from hvd_ft.agent.restart_policy import Done, End, RestartPolicy, Stop
from hvd_ft.job.settings import Settings
from hvd_ft.native.types import BEFORE_INIT, State
from hvd_ft.system.wait_status import describe

GRACE_SECONDS = 3.0  # for a worker after SIGTERM, and for hook commands at the end of the job


def leave_seconds(settings: Settings) -> float:
    """Returns how long an agent may stay for its worker and hooks when the job is over."""
    return settings.stop_grace_seconds + 3 * GRACE_SECONDS


_NEVER = float("inf")
_NS = 1e9


@dataclass(frozen=True)
class WorkerFacts:
    """Facts about the worker from the arena, and about its end from the shim.

    Attributes:
        step: step of its training loop.
        executed: number of ops it has executed.
        contributed: number of ops that its rank has taken part in, in this or an earlier
            incarnation.
        orderly: whether it announced that it ends by itself.
        last_words: the message of its uncaught exception, or "".
        why: why it was killed, if the shim knows; otherwise "".
    """

    step: int = 0
    executed: int = 0
    contributed: int = 0
    orderly: bool = False
    last_words: str = ""
    why: str = ""


@dataclass(frozen=True)
class Past:
    """Facts about this rank that agents of earlier generations have published.

    Attributes:
        attached: the latest incarnation that has called hvd.init(); -1: none.
        failures_ns: when workers died, CLOCK_MONOTONIC.
        away_since_ns: since when the rank has had no worker, if one is to be started again; if its
            host was lost, since its place was given to this host. Otherwise 0.
    """

    attached: int = -1
    failures_ns: Sequence[int] = ()
    away_since_ns: int = 0


class Supervisor:
    """The machine for one rank. Times are seconds on CLOCK_MONOTONIC.

    Args:
        rank: its number.
        settings: the limits.

    Attributes:
        incarnation: of the worker.
        attached: the latest incarnation that has called hvd.init(); -1: none.
        pid: of the worker; 0 between the order and the shim's report; None: there is none.
        over: whether the job is.
    """

    def __init__(self, rank: int, settings: Settings) -> None:
        self._rank = rank
        self._settings = settings
        self._policy = RestartPolicy(rank, settings)
        self.incarnation = 0
        self.attached = -1
        self.pid: int | None = None
        self.over = False
        self._shim_lost = False
        self._stuck: Stuck | None = None  # this incarnation, so it was killed
        self._interrupted = False  # whether the worker has received the user's SIGINT
        self._failed_ns = 0  # when the latest worker died
        self._back_by = _NEVER
        self._term_at = _NEVER
        self._kill_at = _NEVER
        self._leave_at = _NEVER

    @property
    def deadline(self) -> float:
        """When `time_passed` has to be called."""
        return min(self._back_by, self._term_at, self._kill_at)

    @property
    def leave_at(self) -> float:
        """The time at which the agent ends even if a process of its rank still runs."""
        return self._leave_at

    @property
    def watched(self) -> bool:
        """Whether there is a worker to watch for a stall."""
        return bool(self.pid) and not self.over and self.attached == self.incarnation

    def may_leave(self, now: float, *, hooks_running: bool) -> bool:
        """Whether the agent may end: the job is over, and this rank is quiet or late."""
        if not self.over:
            return False
        running = self.pid is not None or hooks_running
        return self._shim_lost or not running or self._leave_at <= now

    # -------------------------------------------------------------- the worker

    def begin(self) -> list[Action]:
        """The job begins."""
        return self._start()

    def take_over(
        self,
        past: Past,
        verdict: GoesOn | HasEnded | ToStart | IsDone,
        facts: WorkerFacts,
        now: float,
    ) -> list[Action]:
        """This agent continues where an agent of an earlier generation was killed.

        Args:
            past: the facts that the earlier agent has published.
            verdict: the verdict on the worker that it has left.
            facts: the facts of that worker.
            now: the time.
        """
        self.attached = past.attached
        self._policy.remember([time_ns / _NS for time_ns in past.failures_ns])
        self._failed_ns = max([past.away_since_ns, *past.failures_ns])
        if isinstance(verdict, IsDone):
            return []
        self.incarnation = verdict.incarnation
        if isinstance(verdict, ToStart):
            return self._start()
        actions: list[Action] = []
        if not verdict.noted:
            actions.append(NoteStarted(verdict.incarnation, verdict.pid))
        if isinstance(verdict, HasEnded):
            time_ns = verdict.time_ns or int(now * _NS)
            ended = replace(facts, why=verdict.why)
            return actions + self.worker_ended(verdict.status, time_ns, ended, now)
        self.pid = verdict.pid
        actions.append(WatchWorker())
        if not verdict.begun:
            actions.append(BeginWorker())
        if self._failed_ns:
            self._back_by = now + self._settings.recovery_timeout_seconds
        return actions

    def worker_started(self, pid: int, *, spare: bool) -> list[Action]:
        """The shim has started the worker, or had a spare become it."""
        self.pid = pid
        actions: list[Action] = [NoteStarted(self.incarnation, pid)]
        if spare:
            # It attaches at once, and its pid must be published by then.
            text = f"rank {self._rank}: a spare (pid {pid}) has taken over"
            actions += [BeginWorker(), Say(text)]
        return actions

    def worker_refused(self, error: str) -> list[Action]:
        """The shim cannot start the worker."""
        self.pid = None
        return [StopJob(127, f"rank {self._rank}: {error}")]

    def worker_attached(self, incarnation: int) -> list[Action]:
        """The worker has called hvd.init()."""
        self.attached = incarnation
        return []

    def worker_rejoined(self, incarnation: int, ops: int, time_ns: int) -> list[Action]:
        """The worker has entered the negotiation: after a restart it has replayed `ops`."""
        if not incarnation == self.incarnation > 0:
            return []
        self._back_by = _NEVER
        seconds = (time_ns - self._failed_ns) / _NS
        facts = {
            "HOROVOD_FT_SECONDS_DOWN": f"{seconds:.3f}",
            "HOROVOD_FT_OPS_REPLAYED": str(ops),
        }
        return [
            Say(f"rank {self._rank} is back after {seconds:.1f} s: {ops} ops replayed"),
            RunHook("on-restart", self.incarnation, facts),
        ]

    def worker_stuck(self, stuck: Stuck) -> list[Action]:
        """The worker does nothing, although others wait for it."""
        self._stuck = stuck
        return [SignalWorker(signal.SIGKILL)]

    def worker_ended(
        self, status: int, time_ns: int, facts: WorkerFacts, now: float
    ) -> list[Action]:
        """The worker is dead.

        Args:
            status: as from wait(2).
            time_ns: when it died, CLOCK_MONOTONIC.
            facts: what is known about it.
            now: the time.
        """
        self.pid = None
        if self.over:
            return []
        end = self._end(status, facts)
        verdict = self._policy.ended(end, time_ns / _NS)
        if isinstance(verdict, Done):
            self._back_by = _NEVER
            return [NoteDone(status)]
        back_by = now + self._settings.recovery_timeout_seconds
        self._back_by = min(self._back_by, back_by)
        if isinstance(verdict, Stop) and not verdict.failed:
            # Stopped first: a job whose ranks are all done ends with 0.
            return [StopJob(verdict.exit_code, verdict.message), NoteDone(status)]
        self._failed_ns = time_ns
        hook = RunHook("on-failure", self.incarnation, {"HOROVOD_FT_EXIT_STATUS": describe(status)})
        cause = [NoteCause(self.incarnation, end.reason)] if end.reason else []
        actions: list[Action] = [NoteFailed(status), *cause, hook]
        if isinstance(verdict, Stop):
            return [*actions, StopJob(verdict.exit_code, verdict.message)]
        died = f"{self._stuck}; killed" if self._stuck else f"died ({describe(status)})"
        self.incarnation += 1
        why = f", {facts.why}" if facts.why else ""
        text = (
            f"rank {self._rank} {died} at step {end.step}{why}; "
            f"restarting as incarnation {self.incarnation}"
        )
        return [*actions, *self._start(), Say(text)]

    def _start(self) -> list[Action]:
        self.pid = 0
        self._stuck = None
        # A first start finds no spare: spares are prepared once all ranks run.
        return [StartWorker(self.incarnation, spare=self.incarnation > 0), WatchWorker()]

    def _end(self, status: int, facts: WorkerFacts) -> End:
        words = str(self._stuck) if self._stuck else facts.why or facts.last_words
        return End(
            status=status,
            incarnation=self.incarnation,
            attached=self.attached == self.incarnation and not words.startswith(BEFORE_INIT),
            orderly=facts.orderly,
            step=facts.step,
            reason=words,
            replayed=facts.executed,
            owed=facts.contributed,
        )

    # -------------------------------------------------------------- the shim

    def shim_died(self) -> list[Action]:
        """The shim was killed, and the worker with it."""
        if self.over:
            self.pid = None
            self._shim_lost = True
            return []
        return [ReplaceShim()]

    def shim_replaced(self, old: int, new: int, facts: WorkerFacts, now: float) -> list[Action]:
        """Another shim has replaced one that died.

        Args:
            old: process id of the shim that died.
            new: process id of the new one.
            facts: facts of the worker that died with the old shim.
            now: the time.
        """
        text = (
            f"the shim of rank {self._rank} (pid {old}) was killed, and its worker with it; "
            f"another one (pid {new}) takes its place"
        )
        if self.pid is None:
            return [Say(text)]
        return [Say(text), *self.worker_ended(signal.SIGKILL, int(now * _NS), facts, now)]

    def shim_not_replaced(self, why: str) -> list[Action]:
        """No other shim could be started."""
        self.pid = None
        self._shim_lost = True
        return [StopJob(1, f"the shim of rank {self._rank} was killed, and {why}")]

    # -------------------------------------------------------------- the job

    def interrupt(self) -> list[Action]:
        """The user's Ctrl-C: passed on to the script, so that it can save its work."""
        # A worker that has not attached is still importing, and would print a traceback from there.
        if not self.pid or self.attached != self.incarnation:
            return []
        self._interrupted = True
        return [SignalWorker(signal.SIGINT)]

    def stop(self, number: signal.Signals) -> list[Action]:
        """Somebody wants the job to end."""
        return [StopJob(128 + number, f"stopped by {number.name}")]

    def preempted(self, text: str) -> list[Action]:
        """The preempted job is checkpointed and ends, or the time for that is over."""
        return [StopJob(128 + signal.SIGTERM, text)]

    def launcher_died(self, name: str) -> list[Action]:
        """A process that the job depends on was killed."""
        text = f"{name} was killed, so the job ends"
        # Print it at once: when the first agent has ended, Hydra kills the others.
        return [StopJob(128 + signal.SIGTERM, text), SayWhyStopped()]

    def job_over(self, now: float, *, hold_seconds: float = 0.0) -> list[Action]:
        """The job was stopped, or all ranks are done.

        Args:
            now: the time.
            hold_seconds: for the worker to write its stacks before it is ended.
        """
        if self.over:
            return []
        self.over = True
        self._back_by = _NEVER
        self._leave_at = now + GRACE_SECONDS
        if self.pid is not None:
            grace = self._settings.stop_grace_seconds if self._interrupted else hold_seconds
            self._term_at = now + grace
            self._leave_at += grace + 2 * GRACE_SECONDS
        return [SayWhyStopped()]

    def stacks_written(self, now: float) -> None:
        """The worker has written its stacks: it is ended, unless the user has interrupted it."""
        if self._term_at < _NEVER and not self._interrupted:
            self._term_at = now

    def time_passed(self, now: float, state: State) -> list[Action]:
        """`deadline` may have come.

        Args:
            now: the time.
            state: the rank's state in the arena, because events may have been overwritten before
                they were read.
        """
        actions: list[Action] = []
        if self._term_at <= now:
            self._term_at = _NEVER
            self._kill_at = now + GRACE_SECONDS
            actions.append(SignalWorker(signal.SIGTERM))
        elif self._kill_at <= now:
            self._kill_at = _NEVER
            actions.append(SignalWorker(signal.SIGKILL))
        if self._back_by <= now:
            self._back_by = _NEVER
            if state in (State.RESTARTING, State.REPLAYING):
                actions.append(StopJob(1, self._not_back()))
        return actions

    def _not_back(self) -> str:
        return (
            f"rank {self._rank} (incarnation {self.incarnation}, pid {self.pid}) did not come back "
            f"within {self._settings.recovery_timeout_seconds:g} s: raise "
            "HOROVOD_FT_RECOVERY_TIMEOUT_SECONDS if its start takes longer; what it has printed, "
            "if anything, is above"
        )
