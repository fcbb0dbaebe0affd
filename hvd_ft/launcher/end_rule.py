"""The rules for an mpirun that would not end by itself. Pure.

Hydra waits for its processes on all hosts, and does not notice a host that is lost, nor does it do
anything while it is stopped. Once the job's exit code is known there is little left to wait for.
"""

from collections.abc import Collection
from dataclasses import dataclass

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
