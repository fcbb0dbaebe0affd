"""The rule that decides whether new agents are started after mpirun has ended. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hvd_ft.job.failure_window import RecentFailures
from hvd_ft.job.lifeline_messages import ShimStatus
from hvd_ft.job.settings import Settings
from hvd_ft.system.wait_status import describe_code


@dataclass(frozen=True)
class Again:
    """The next generation of agents is to be started."""


@dataclass(frozen=True)
class Over:
    """The job has ended.

    Attributes:
        message: why, in one line, if it did not end by itself.
    """

    message: str = ""


@dataclass(frozen=True)
class NotYet:
    """Undecided until more is heard from the shims."""


class GenerationPolicy:
    """The rules for one job.

    Args:
        settings: the limits.
    """

    def __init__(self, settings: Settings) -> None:
        self._failures = RecentFailures(settings)

    def ended(
        self,
        shims: Sequence[ShimStatus],
        now: float,
        *,
        over: bool = False,
        counts: bool = True,
    ) -> Again | Over | NotYet:
        """Judges the end of an mpirun; to be called until it returns something else than `NotYet`.

        Args:
            shims: the latest status of the job's shims.
            now: seconds on any steady clock.
            over: whether the user has stopped the job, or a shim has reported its exit code.
            counts: whether this end is a failure of agents; otherwise hosts or links are the cause.
        """
        if not shims or over:
            return Over()
        # A shim that leaves in good order sends nothing: its line ends.
        if not any(shim.orphaned for shim in shims):
            return NotYet()
        if not counts:
            return Again()
        self._failures.add(now)
        if not self._failures.too_many():
            return Again()
        return Over(
            f"agents or mpirun failed {self._failures}, so the job was ended; "
            "what they have printed, if anything, is above"
        )


def why_again(shims: Sequence[ShimStatus], code: int) -> str:
    """Returns why new agents are needed, in words.

    Args:
        shims: the latest status of the job's shims.
        code: of mpirun.
    """
    for shim in shims:
        if shim.orphaned and shim.lack:
            return f"the agent of rank {shim.rank} has died, and the kernel has {shim.lack}"
    return f"mpirun ended ({describe_code(code)}) before the job"
