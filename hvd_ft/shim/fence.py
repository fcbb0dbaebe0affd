"""Stops a shim's processes and its agent for as long as the shim has no lease.

Stopping can be undone: if the launcher is heard again and the host still has its place, all
processes continue where they were. If the host was replaced meanwhile, the shim is ordered to end.
act_lease.py is the rule.
"""

from collections.abc import Callable

import psutil

from hvd_ft.members.act_lease import ActLease
from hvd_ft.system.event_loop import EventLoop
from hvd_ft.system.freeze import let_continue, stop_descendants


class Fence:
    """The fence of one shim.

    Args:
        loop: keeps the time.
        agent: returns the agent's process id; None if there is none.
        on_stopped: called when processes have been stopped.
        on_open: called when processes may act (again), each time that a lease begins.
    """

    def __init__(
        self,
        loop: EventLoop,
        agent: Callable[[], int | None],
        on_stopped: Callable[[], None],
        on_open: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._agent = agent
        self._on_stopped = on_stopped
        self._on_open = on_open
        self._lease: ActLease | None = None
        self._stopped: list[psutil.Process] = []
        self._ended = loop.timer(self._look)
        self.is_open = True

    def begin(self, seconds: float | None) -> None:
        """Begins with a launcher, which has granted nothing yet.

        Args:
            seconds: the length of leases; None: processes need none.
        """
        self._ended.clear()
        self._lease = None if seconds is None else ActLease(seconds)
        if seconds is None:
            self._open()
        else:
            self.is_open = False

    def answered(self, number: int) -> None:
        """Notes that a question from the launcher is being answered; call it before sending."""
        if self._lease is not None:
            self._lease = self._lease.answered(number, self._loop.now())

    def granted(self, number: int) -> None:
        """Renews the lease, as the launcher has received the answer of that number."""
        if self._lease is None:
            return
        self._lease = self._lease.granted(number)
        if self._lease.holds(self._loop.now()):
            self._ended.set(self._lease.until)
            self._open()

    def stop(self) -> None:
        """Stops all processes that move, unless there is a lease."""
        if not self.is_open:
            self._stopped += stop_descendants([pid for pid in (self._agent(),) if pid])
            self._on_stopped()

    def _look(self) -> None:
        assert self._lease is not None
        if self._lease.holds(self._loop.now()):
            self._ended.set(self._lease.until)
            return
        self.is_open = False
        self.stop()

    def _open(self) -> None:
        if self.is_open:
            return
        self.is_open = True
        let_continue(self._stopped)
        self._stopped = []
        self._on_open()
