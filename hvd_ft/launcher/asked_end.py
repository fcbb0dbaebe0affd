"""How a signal ends a job: in order the first time, by killing mpirun the second."""

import signal

from hvd_ft.job.lifeline import LifeLines
from hvd_ft.job.settings import Settings
from hvd_ft.mpi.mpirun import Mpirun
from hvd_ft.system.event_loop import EventLoop
from hvd_ft.system.stop_signals import PREEMPTION, StopSignals

# Agents and shims have shorter limits of their own; these apply when those fail.
STOP_LIMIT_SECONDS = 10.0  # from the end of the workers' grace to killing mpirun
INTERRUPT_SECONDS = 1.0  # limit for the workers to receive SIGINT before the job is stopped
GRACE_MARGIN_SECONDS = 1.0  # for rank 0's agent to end the job by itself


class AskedEnd:
    """Asks a job to end when this process receives signals.

    Args:
        loop: runs its deadline.
        signals: those of this process.
        lifelines: over which shims are told.
        size: number of the job's ranks.
        settings: the job's, for how long its workers have.
        mpirun: is killed if the job does not end.
    """

    def __init__(
        self,
        loop: EventLoop,
        signals: StopSignals,
        lifelines: LifeLines,
        size: int,
        settings: Settings,
        *,
        mpirun: Mpirun,
    ) -> None:
        self._loop = loop
        self._signals = signals
        self._lifelines = lifelines
        self._size = size
        self._grace = settings.grace_seconds
        # At its end a job writes its latest state.
        self.drain_seconds = settings.checkpoint_timeout_seconds if settings.checkpoint_dir else 0.0
        self._limit = settings.stop_grace_seconds + STOP_LIMIT_SECONDS + self.drain_seconds
        self._mpirun = mpirun
        self._heeded = 0  # signals
        self._stop = loop.timer(self._stop_workers)  # when the workers' time to handle SIGINT ends

    @property
    def number(self) -> int:
        """The number of the signal that ends the job; SIGTERM's if there was none."""
        first = next(iter(self._signals.received), signal.SIGTERM)
        return int(signal.SIGTERM if first == signal.SIGUSR1 else first)

    @property
    def has_grace(self) -> bool:
        """Whether SIGTERM and SIGUSR1 leave the job time for a checkpoint."""
        return bool(self._grace)

    def heed(self) -> None:
        """Acts on signals received since the last call, and on workers that have handled SIGINT."""
        received = self._signals.received
        if len(received) > self._heeded:
            again, self._heeded = self._heeded > 0, len(received)
            if again or not self._all_here():
                self._mpirun.kill()
                return
            self._begin(received[0])
        if len(self._lifelines.interrupted) >= self._size:
            self._stop_workers()

    def preempt(self) -> None:
        """Ends the job as SIGTERM does: with a checkpoint first."""
        if not self._heeded:
            self._heeded = 1
            self._begin(signal.SIGTERM)

    def mpirun_has_ended(self) -> None:
        """Nobody is left who could be told."""
        self._stop.clear()

    def _begin(self, first: signal.Signals) -> None:
        grace = 0.0
        if self._grace and first in PREEMPTION:
            grace = self._grace + GRACE_MARGIN_SECONDS
            self._lifelines.tell({"preempt": True})
        self._mpirun.end_by(grace + self._limit)
        self._stop.set(self._loop.now() + grace)
        if first == signal.SIGINT:
            self._lifelines.tell({"interrupt": True})
            self._stop.set(self._loop.now() + INTERRUPT_SECONDS)

    def _stop_workers(self) -> None:
        self._stop.clear()
        self._lifelines.interrupted.clear()
        self._lifelines.tell({"stop": self.number})

    def _all_here(self) -> bool:
        """Returns whether all agents have begun; before that nothing can end in order."""
        return sum(shim is not None for shim in self._lifelines.shims) >= self._size
