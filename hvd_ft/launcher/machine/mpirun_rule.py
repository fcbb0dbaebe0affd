"""The rules for an mpirun that would not end by itself. Pure.

Hydra waits for its processes on all hosts, and does not notice a host that is lost, nor does it do
anything while it is stopped. Once the job's exit code is known there is little left to wait for.
"""

from collections.abc import Collection
from dataclasses import dataclass

from hvd_ft.launcher.machine.actions import Actions, ContinueMpirun, KillMpirun
from hvd_ft.launcher.machine.seen import MpirunSeen

LEFT_SECONDS = 10.0  # for mpirun to end when all shims have left
STOPPED_SECONDS = 1.0  # for a stopped mpirun, once the exit code is known
_TRIES = 3  # to have a stopped process continue


@dataclass(frozen=True)
class Kill:
    """mpirun is to be killed.

    Attributes:
        why: in words, for the user.
    """

    why: str


@dataclass(frozen=True)
class Continue:
    """Stopped processes are to continue: mpirun has the job's output.

    Attributes:
        seconds: for which they were stopped.
    """

    seconds: float


class EndRule:
    """How long an mpirun is waited for once the job's exit code is known.

    Args:
        seconds: for shims to end all that they have started.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds + LEFT_SECONDS
        self._left_at: float | None = None

    def look(self, now: float, lost: Collection[str], *, shims: bool) -> Kill | None:
        """Judges an mpirun that has not ended.

        Args:
            now: seconds on any steady clock.
            lost: hosts that have not said goodbye, and do not answer; in words.
            shims: whether any shim has a line still. Agents that wait for others, or for hook
                commands, have limits of their own.
        """
        if lost:
            verb = "is" if len(lost) == 1 else "are"
            names = ", ".join(sorted(lost))
            return Kill(f"{names} {verb} lost; the job is over, so nothing is waited for there")
        if shims:
            self._left_at = None
            return None
        if self._left_at is None:
            self._left_at = now
        if now - self._left_at < self._seconds:
            return None
        return Kill(
            f"mpirun has not ended for {now - self._left_at:.0f} s after the job's last process, "
            "so it is killed; the last output of the job may be lost"
        )


class StopRule:
    """How long an mpirun may be stopped by a signal.

    Args:
        seconds: as long as the job runs.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: float | None = None
        self._tries = 0

    def look(self, now: float, *, stopped: bool, over: bool) -> Continue | Kill | None:
        """Judges an mpirun that runs or is stopped.

        Args:
            now: seconds on any steady clock.
            stopped: whether it, or a process of its own on this host, is stopped.
            over: whether the job's exit code is known.
        """
        if not stopped:
            self._since = None
            return None
        if self._since is None:
            self._since = now
        if now - self._since < (STOPPED_SECONDS if over else self._seconds):
            return None
        seconds, self._since = now - self._since, now
        self._tries += 1
        if self._tries <= _TRIES:
            return Continue(seconds)
        return Kill("mpirun is stopped again and again, so it is killed, and its output is lost")


class MpirunRule:
    """Both rules for one job.

    Args:
        drain_seconds: for shims to end all that they have started.
        lease_seconds: for which mpirun may be stopped as long as the job runs.
        out: takes actions.
    """

    def __init__(self, drain_seconds: float, lease_seconds: float, out: Actions) -> None:
        self._drain = drain_seconds
        self._lease = lease_seconds
        self._out = out
        self.begin()

    def begin(self) -> None:
        """Another mpirun is started."""
        self._end = EndRule(self._drain)
        self._stop = StopRule(self._lease)
        self._killed = False

    def look(
        self, now: float, mpirun: MpirunSeen, lost: Collection[str] | None, *, shims: bool
    ) -> None:
        """Sees to it that mpirun ends when the job does, and does not stay stopped.

        Args:
            now: seconds on any steady clock.
            mpirun: that runs, or is stopped.
            lost: as of `EndRule.look`; None: the exit code is not known.
            shims: as of `EndRule.look`.
        """
        if self._killed:
            return  # it ends soon, and the user knows why
        over = lost is not None
        verdict = self._end.look(now, lost, shims=shims) if lost is not None else None
        match verdict or self._stop.look(now, stopped=mpirun.stopped, over=over):
            case Kill(why):
                self._killed = True
                self._out.say(why)
                self._out.add(KillMpirun())
            case Continue(seconds):
                self._out.say(
                    f"mpirun (pid {mpirun.pid}) was stopped for {seconds:.0f} s, with all output "
                    "of the job; it continues"
                )
                self._out.add(ContinueMpirun())
