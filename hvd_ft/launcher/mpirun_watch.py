"""Sees to it that mpirun ends when the job does, and does not stay stopped."""

import contextlib
import os
import signal

from hvd_ft.job.lifeline import LifeLines
from hvd_ft.job.settings import Settings
from hvd_ft.launcher.end_rule import Continue, EndRule, Kill, StopRule
from hvd_ft.launcher.host_watch import HostWatch
from hvd_ft.mpi.mpirun import Mpirun
from hvd_ft.system.say import say


class MpirunWatch:
    """The watch over one mpirun after the other.

    Args:
        mpirun: that runs, or does not.
        hosts: of the job.
        lines: to the shims.
        settings: the limits.
    """

    def __init__(
        self,
        mpirun: Mpirun,
        hosts: HostWatch,
        lines: LifeLines,
        settings: Settings,
    ) -> None:
        self._mpirun = mpirun
        self._hosts = hosts
        self._lines = lines
        drains = settings.checkpoint_dir is not None
        self._end = EndRule(settings.checkpoint_timeout_seconds if drains else 0.0)
        self._stop = StopRule(settings.lease_seconds)

    def look(self, now: float) -> bool:
        """Looks at mpirun, and acts; returns whether the job's exit code is known.

        Args:
            now: time.monotonic()'s.
        """
        over = self._lines.exit_code is not None
        if not self._mpirun.runs:
            return over
        verdict: Continue | Kill | None = None
        if over:
            lost = self._hosts.look_at_end(now)
            verdict = self._end.look(now, lost, shims=bool(self._lines.shims))
        stopped = self._mpirun.stopped()
        verdict = verdict or self._stop.look(now, stopped=bool(stopped), over=over)
        match verdict:
            case Kill(why):
                say(why)
                self._mpirun.kill()
            case Continue(seconds):
                say(
                    f"mpirun (pid {self._mpirun.pid}) was stopped for {seconds:.0f} s, with all "
                    "output of the job; it continues"
                )
                for pid in stopped:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)
        return over
