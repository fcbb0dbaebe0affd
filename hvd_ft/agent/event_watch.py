"""The job's events as a descriptor that can be polled together with others."""

import os
import threading

from hvd_ft.native.agent import Agent
from hvd_ft.native.types import WaitResult

_WAIT_MS = 60_000


class JobNews:
    """Watches a job in a separate thread during the `with` block.

    Args:
        agent: a rank's side of the core.

    Attributes:
        over: whether the job is stopped or all its ranks are done; no event follows.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC)
        self._left = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self.over = False

    def __enter__(self) -> "JobNews":
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._agent.wake()
        self._watcher.join()
        os.close(self._descriptor)

    def fileno(self) -> int:
        """Returns the descriptor to wait on: readable when something has happened."""
        return self._descriptor

    def take(self) -> None:
        """Clears the descriptor until the next event."""
        os.eventfd_read(self._descriptor)

    def _watch(self) -> None:
        seen = 0
        while not self._left.is_set():
            outcome = self._agent.wait(seen, _WAIT_MS)
            if outcome == WaitResult.NOTHING:
                continue
            seen = self._agent.event_count
            self.over = outcome in (WaitResult.STOPPED, WaitResult.ALL_DONE)
            os.eventfd_write(self._descriptor, 1)
            if self.over:
                return
