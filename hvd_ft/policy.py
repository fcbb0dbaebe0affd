"""What becomes of a rank whose worker has ended: no process, no clock, only the rules."""

import os
from collections import deque
from dataclasses import dataclass

from hvd_ft.commands import describe
from hvd_ft.settings import Settings


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
        exit_code: of the job.
        message: why, in one line.
        failed: whether the worker failed; else it ended by itself.
    """

    exit_code: int
    message: str
    failed: bool


class RestartPolicy:
    """The rules for one rank.

    Args:
        rank: whose worker it is, for messages.
        settings: the limits.
    """

    def __init__(self, rank: int, settings: Settings) -> None:
        self._rank = rank
        self._settings = settings
        self._failures: deque[float] = deque()

    def ended(self, status: int, orderly: bool, now: float) -> Done | Restart | Stop:
        """Judges the end of the rank's worker.

        Args:
            status: as from wait(2).
            orderly: whether the worker announced that it ends by itself.
            now: seconds on any steady clock.
        """
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            return Done()
        if orderly and code > 0:
            return Stop(code, f"the worker of rank {self._rank} ended with exit code {code}", False)
        window = self._settings.failure_window_seconds
        self._failures.append(now)
        while self._failures[0] < now - window:
            self._failures.popleft()
        if len(self._failures) <= self._settings.max_failures:
            return Restart()
        return Stop(
            code if code > 0 else 128 - code,
            f"rank {self._rank} failed {len(self._failures)} times within {window:g} s, the last "
            f"time with {describe(status)}: see its output above "
            f"(HOROVOD_FT_MAX_FAILURES is {self._settings.max_failures})",
            True,
        )
