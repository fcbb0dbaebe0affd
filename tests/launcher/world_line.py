"""A life-line of a simulated job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from job_world import LATENCY, World

if TYPE_CHECKING:
    from world_launcher import Launcher
    from world_shim import Shim


class Line:
    """A life-line. What is sent while the link is cut arrives later, unless that lasts too long."""

    def __init__(self, world: World, launcher: Launcher, shim: Shim, number: int) -> None:
        self.world, self.launcher, self.shim, self.number = world, launcher, shim, number
        self.closed_here = False  # at the launcher's end
        self.closed_there = False  # at the shim's end
        self._waiting: list[tuple[str, Any]] = []
        self._cut_since: float | None = None

    @property
    def passes(self) -> bool:
        return self.world.reaches(self.launcher.host, self.shim.host)

    def send(self, way: str, message: Any) -> None:
        """Sends a message: `up` to the launcher, `down` to the shim; `end`, when a side closes."""
        self.world.after(LATENCY, self, "arrive", way, message)

    def arrive(self, way: str, message: Any) -> None:
        if self._waiting or not self.passes:
            self._waiting.append((way, message))
            self.watch_cut()
            return
        self._deliver(way, message)

    def _deliver(self, way: str, message: Any) -> None:
        if way == "up" and not self.closed_here:
            if message is None:
                self.close_here(hung_up=True)
            else:
                self.launcher.hear(self, message)
        elif way == "down" and not self.closed_there:
            if message is None:
                self.closed_there = True
                self.shim.line_ended(self)
            else:
                self.shim.hear(self, message)

    def flush(self) -> None:
        """Delivers what has waited, if the link is there again."""
        if not self.passes:
            self.watch_cut()
            return
        self._cut_since = None
        waiting, self._waiting = self._waiting, []
        for way, message in waiting:
            self._deliver(way, message)

    def watch_cut(self) -> None:
        if self._cut_since is None and not (self.closed_here and self.closed_there):
            self._cut_since = self.world.now
            lease = self.world.settings.lease_seconds
            self.world.after(lease, self, "break_if_cut", self._cut_since)

    def break_if_cut(self, since: float) -> None:
        """TCP gives up at both ends."""
        if self._cut_since != since or self.passes:
            return
        self._waiting = []
        if not self.closed_here:
            self.close_here(hung_up=False)
        if not self.closed_there:
            self.closed_there = True
            self.shim.line_ended(self)

    def close_here(self, *, hung_up: bool) -> None:
        """The launcher's end is closed, and it is told."""
        self.closed_here = True
        self.launcher.line_ended(self, hung_up=hung_up)
