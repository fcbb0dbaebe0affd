"""How a signal ends a job: in order the first time, by killing mpirun the second. Pure."""

import signal

from hvd_ft.job.lifeline_messages import FromLauncher, Interrupt, Preempt, Stop
from hvd_ft.job.settings import Settings
from hvd_ft.launcher.machine.actions import Actions, KillMpirun, Send
from hvd_ft.launcher.machine.shim_roll import ShimRoll
from hvd_ft.system.stop_signals import PREEMPTION

# Agents and shims have shorter limits of their own; these apply when those fail.
STOP_LIMIT_SECONDS = 10.0  # from the end of the workers' grace to killing mpirun
INTERRUPT_SECONDS = 1.0  # limit for the workers to receive SIGINT before the job is stopped
GRACE_MARGIN_SECONDS = 1.0  # for rank 0's agent to end the job by itself
_NEVER = float("inf")


def drain_seconds(settings: Settings) -> float:
    """Returns for how long a job may write its latest state at its end."""
    return settings.checkpoint_timeout_seconds if settings.checkpoint_dir else 0.0


class AskedEnd:
    """The end of a job that was asked for.

    Args:
        settings: the job's, for how long its workers have.
        size: number of the job's ranks.
        roll: of the job's shims, which are told.
        out: takes actions.

    Attributes:
        received: the signals that the launcher has received.
        has_grace: whether SIGTERM and SIGUSR1 leave the job time for a checkpoint.
        kill_at: when mpirun is killed if the job has not ended.
    """

    def __init__(self, settings: Settings, size: int, roll: ShimRoll, out: Actions) -> None:
        self._grace = settings.grace_seconds
        self._limit = settings.stop_grace_seconds + STOP_LIMIT_SECONDS + drain_seconds(settings)
        self._size = size
        self._roll = roll
        self._out = out
        self._preempts = False  # by itself
        self._told: FromLauncher | None = None  # last, to the agents of this mpirun
        self._stop_at = _NEVER  # when the workers' time to handle SIGINT, or their grace, ends
        self.received: list[signal.Signals] = []
        self.has_grace = bool(self._grace)
        self.kill_at = _NEVER

    @property
    def deadline(self) -> float:
        """When `time_passed` has something to do."""
        return min(self._stop_at, self.kill_at)

    def asked(self, number: signal.Signals, now: float, *, runs: bool) -> None:
        """The launcher has received a signal.

        Args:
            number: its number.
            now: seconds on any steady clock.
            runs: whether mpirun does.
        """
        self.received.append(number)
        if not runs:
            return
        # Before all agents are there nothing can end in order.
        if len(self.received) > 1 or len(self._roll.shims) < self._size:
            self._out.add(KillMpirun())
        elif not (self._preempts and number in PREEMPTION):  # that is under way
            self._begin(number, now)

    def preempt(self, now: float) -> None:
        """Ends the job as SIGTERM does: with a checkpoint first."""
        if not self.received:
            self._preempts = True
            self._begin(signal.SIGTERM, now)

    def agent_came(self, line: int) -> None:
        """A shim has got its agent: what it was told before, it was told when it had none."""
        if self._told is not None:
            self._out.add(Send(line, self._told))

    def interrupted(self) -> None:
        """Another worker has received SIGINT."""
        if len(self._roll.interrupted) >= self._size:
            self._stop_workers()

    def time_passed(self, now: float) -> None:
        """A deadline may have come."""
        if now >= self._stop_at:
            self._stop_workers()
        if now >= self.kill_at:
            self.kill_at = _NEVER
            self._out.add(KillMpirun())

    def kill_by(self, at: float) -> None:
        """Has mpirun killed at a time, unless that is due earlier."""
        self.kill_at = min(self.kill_at, at)

    def mpirun_ended(self) -> None:
        """Nobody is left who could be told."""
        self._stop_at = self.kill_at = _NEVER
        self._preempts = False
        self._told = None

    def _begin(self, first: signal.Signals, now: float) -> None:
        grace = 0.0
        if self._grace and first in PREEMPTION:
            grace = self._grace + GRACE_MARGIN_SECONDS
            self._tell(Preempt())
        self.kill_by(now + grace + self._limit)
        self._stop_at = now + grace
        if first == signal.SIGINT:
            self._tell(Interrupt())
            self._stop_at = now + INTERRUPT_SECONDS
        elif not grace:
            self._stop_workers()

    def _stop_workers(self) -> None:
        self._stop_at = _NEVER
        self._roll.interrupted.clear()
        first = next(iter(self.received), signal.SIGTERM)
        self._tell(Stop(signal.SIGTERM if first == signal.SIGUSR1 else first))

    def _tell(self, message: FromLauncher) -> None:
        self._told = message
        self._roll.tell(message)
