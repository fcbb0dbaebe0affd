"""The rule that decides what to do when a worker has ended: no process, no clock."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from hvd_ft.job.failure_window import RecentFailures
from hvd_ft.job.settings import Settings
from hvd_ft.system.wait_status import describe

_ADDRESS = re.compile(r"0x[0-9a-f]+")  # an object's address in a message, which differs each time
_ABOVE = "what it has printed, if anything, is above"


@dataclass(frozen=True)
class Done:
    """The worker has finished its work."""


@dataclass(frozen=True)
class Restart:
    """The worker failed and the next incarnation is to be started."""


@dataclass(frozen=True)
class Stop:
    """The job ends.

    Attributes:
        exit_code: the job's exit code.
        message: why, in one line.
        failed: whether the worker failed; otherwise it ended by itself.
    """

    exit_code: int
    message: str
    failed: bool


@dataclass(frozen=True)
class End:
    """How a worker has ended.

    Attributes:
        status: as from wait(2).
        orderly: whether the worker announced that it ends by itself.
        step: step of its training loop.
        reason: what is known besides the status: its last words, or that it was stuck; "" if
            nothing.
        replayed: number of ops it has executed.
        owed: number of ops that its rank has taken part in, in this or an earlier incarnation.
        incarnation: the worker's incarnation.
        attached: whether it had called hvd.init().
    """

    status: int
    orderly: bool
    step: int = 0
    reason: str = ""
    replayed: int = 0
    owed: int = 0
    incarnation: int = 0
    attached: bool = True

    def __str__(self) -> str:
        return f"{self.reason} ({describe(self.status)})" if self.reason else describe(self.status)


class RestartPolicy:
    """The rules for one rank.

    Args:
        rank: whose worker it is, for messages.
        settings: the limits.
    """

    def __init__(self, rank: int, settings: Settings) -> None:
        self._rank = rank
        self._failures = RecentFailures(settings)
        self._failed = False  # ever
        self._last: tuple[str, int] | None = None  # error and step of the latest failure

    def remember(self, failures: Sequence[float]) -> None:
        """Counts the rank's failures that an earlier agent has seen, on the clock of `ended`."""
        self._failures.add(*failures)
        self._failed |= bool(failures)

    def ended(self, end: End, now: float) -> Done | Restart | Stop:
        """Returns what to do after the end of the rank's worker.

        Args:
            end: what is known of it.
            now: seconds on any steady clock.
        """
        code = os.waitstatus_to_exitcode(end.status)
        if code == 0 and end.replayed < end.owed and self._failed:
            return Stop(
                1,
                f"rank {self._rank} cannot be replayed: the restarted script ended after "
                f"{end.replayed} collectives, but before its restart it took part in {end.owed}; "
                "likely a branch on time, files, random numbers or hvd.incarnation(); a restarted "
                "script must do the same collectives in the same order",
                False,
            )
        if code == 0:
            return Done()
        early = not end.attached and end.incarnation == 0
        if code > 0 and (end.orderly or early):
            message = f"the worker of rank {self._rank} ended with exit code {code}"
            if early:
                message += f" {end.reason or f'before hvd.init(); {_ABOVE}'}"
            return Stop(code, message, False)
        self._failed = True
        if code > 0 and self._repeats(end):
            return Stop(
                code,
                f"rank {self._rank} failed again at step {end.step} with the same error, so it is "
                f"not restarted: {end}",
                True,
            )
        self._failures.add(now)
        if not self._failures.too_many():
            return Restart()
        return Stop(
            code if code > 0 else 128 - code,
            f"rank {self._rank} failed {self._failures}, the last time at step {end.step}: "
            f"{end}; {_ABOVE}",
            True,
        )

    def _repeats(self, end: End) -> bool:
        """Returns whether the previous incarnation failed at this step with this error."""
        error = end.reason or ("" if end.attached else str(end))
        known = (_ADDRESS.sub("0x", error), end.step) if error else None
        repeated = known is not None and known == self._last
        self._last = known
        return repeated
