"""Counts failures against HOROVOD_FT_MAX_FAILURES within its time window. Pure."""

from collections import deque

from hvd_ft.job.settings import Settings


class RecentFailures:
    """The failures that count against HOROVOD_FT_MAX_FAILURES.

    Args:
        settings: the limits.
    """

    def __init__(self, settings: Settings) -> None:
        self._limit = settings.max_failures
        self._window = settings.failure_window_seconds
        self._times: deque[float] = deque()

    def add(self, *times: float) -> None:
        """Counts failures, the oldest first; those too long before the last one are dropped."""
        self._times.extend(times)
        while self._times and self._times[0] < self._times[-1] - self._window:
            self._times.popleft()

    def too_many(self) -> bool:
        """Returns whether there are more than the limit."""
        return len(self._times) > self._limit

    def __str__(self) -> str:
        return (
            f"{len(self._times)} times within {self._window:g} s "
            f"(HOROVOD_FT_MAX_FAILURES is {self._limit})"
        )
