"""The rule that decides when a process that should report every second has stopped. Pure.

An agent and its shim watch each other in this way: if one of them is stopped (SIGSTOP, a stuck
kernel call) the other kills it, and then handles its death as any other.
"""

BEAT_SECONDS = 1.0
_NEVER = float("inf")


class Beats:
    """The heartbeats of one process.

    Args:
        lease_seconds: how long it may be silent.
    """

    def __init__(self, lease_seconds: float) -> None:
        self._lease = lease_seconds
        self._heard: float | None = None  # None: nothing is expected
        self._looked = 0.0

    def heard(self, now: float) -> None:
        """Notes a heartbeat, or the beginning of the watch."""
        self._heard = self._looked = now

    def stop(self) -> None:
        """Ends the watch."""
        self._heard = None

    @property
    def look_at(self) -> float:
        """When `is_silent` has to be called at the latest."""
        return _NEVER if self._heard is None else self._looked + self._lease / 4

    def is_silent(self, now: float) -> bool:
        """Returns whether it has been silent for too long.

        Args:
            now: seconds on any steady clock.
        """
        if self._heard is None:
            return False
        if now - self._looked > self._lease / 2:
            self._heard = now  # this process stood still itself, perhaps with the whole machine
        self._looked = now
        return now - self._heard > self._lease
