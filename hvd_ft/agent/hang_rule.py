"""The rule that decides which worker is stuck: no clock, no I/O.

A worker blocks the others if they wait for it while it does not wait itself. A worker that has
contributed to a collective and waits for its result sleeps until it is notified; it is not stuck,
however long that takes. So a worker is stuck if it has done nothing for the whole timeout, and

- it is in a collective, but does not sleep, or was notified and did not wake up: its process is
  stopped;
- or it is in no collective, and another worker has waited in one for the whole timeout: its script
  hangs, or its process is stopped.

For workers that are being restarted, or are replaying, the recovery timeout counts instead.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hvd_ft.native.types import State, Watch

LOOKS = 8  # within the timeout
_WATCHED = (State.STARTING, State.RUNNING, State.WAITING)


@dataclass(frozen=True)
class Stuck:
    """A worker that is to be killed.

    Attributes:
        seconds: the time since it last did something.
        waiting: the ranks that have waited for it for the whole timeout; may be none.
        where: the position of its script, in words; "" if it is not known.
    """

    seconds: float
    waiting: Sequence[int]
    where: str = ""

    def __str__(self) -> str:
        text = f"it made no progress for {self.seconds:.1f} s"
        if self.waiting:
            text = f"{self._ranks} waited {self.seconds:.1f} s for it"
        return f"was stuck: {text}{f'; {self.where}' if self.where else ''}"

    def as_warning(self) -> str:
        """Returns the warning about a worker that is not killed."""
        if not self.waiting:
            return f"has made no progress for {self.seconds:.0f} s: {self.where}"
        return f"has kept {self._ranks} waiting for {self.seconds:.0f} s: {self.where}"

    @property
    def _ranks(self) -> str:
        numbers = ", ".join(map(str, self.waiting))
        return f"{'rank' if len(self.waiting) == 1 else 'ranks'} {numbers}"


class HangRule:
    """The rule for one rank.

    Args:
        rank: whose worker it is.
        timeout_seconds: how long a worker may do nothing.
    """

    def __init__(self, rank: int, timeout_seconds: float) -> None:
        self._rank = rank
        self._timeout = timeout_seconds
        self._last_look = float("-inf")
        self._seen: dict[int, tuple[Watch, float]] = {}  # by rank, with its time

    def observe(self, now: float, ranks: Mapping[int, Watch]) -> Stuck | None:
        """Judges the rank's worker from the state of all workers.

        Args:
            now: seconds on any steady clock, some `LOOKS` times within the timeout.
            ranks: by rank.

        Returns:
            Why the worker is to be killed, or None.
        """
        if now - self._last_look > self._timeout / 2:
            self._seen.clear()  # the whole machine stood still, not only the workers
        self._last_look = now
        for rank, watch in ranks.items():
            if rank not in self._seen or self._seen[rank][0] != watch:
                self._seen[rank] = (watch, now)
        mine = ranks[self._rank]
        if mine.state not in _WATCHED or not self._still(self._rank, now):
            return None
        waiting = [
            rank
            for rank, watch in ranks.items()
            if rank != self._rank
            and watch.state is not State.DONE
            and watch.pending > 0
            and self._still(rank, now)
        ]
        if mine.asleep if mine.pending > 0 else not waiting:
            return None
        return Stuck(now - self._seen[self._rank][1], waiting)

    def _still(self, rank: int, now: float) -> bool:
        return now - self._seen[rank][1] >= self._timeout
