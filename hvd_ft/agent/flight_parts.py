"""An agent's part of flight records: the worker's stacks and, of a node's first agent, the node."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from hvd_ft import native
from hvd_ft.agent import stacks
from hvd_ft.agent.job_context import JobContext
from hvd_ft.errors import HvdFtError
from hvd_ft.status.node_record import read_node

_ANSWER_SECONDS = 0.8  # limit for a worker to write its stacks
_REST_SECONDS = 0.1  # limit for the rest of them
_MOST_STACKS = 16 << 10  # characters, of a rank
_NEVER = float("inf")


class FlightParts:
    """The parts of one rank.

    Args:
        context: the agent's place in the job.
        observer: of the job.
        reader: of the worker's stacks.
        ask: asks the worker to write them.
        send: sends a part to the launcher, with the number of its record.
        volunteers: whether a part is sent when the job is stopped.

    Attributes:
        look_at: when `look` has to be called, on the clock of time.monotonic().
    """

    def __init__(
        self,
        context: JobContext,
        observer: native.Observer,
        reader: stacks.StackReader,
        *,
        ask: Callable[[], None],
        send: Callable[[int, dict[str, Any]], None],
        volunteers: bool,
    ) -> None:
        self._context = context
        self._observer = observer
        self._reader = reader
        self._ask = ask
        self._send = send
        self._number: int | None = None  # of the record that waits for this part
        self._text: list[str] = []
        self._pid = 0
        self.volunteers = volunteers
        self.look_at = _NEVER

    def begin(self, number: int, pid: int | None) -> None:
        """Begins a part: asks the worker for its stacks.

        Args:
            number: of the record; 0: this agent was not asked, as the job is being stopped.
            pid: of the worker; None: there is none that can write them.
        """
        self._number, self._pid, self._text = number, pid or 0, []
        self._reader.copy = self._text
        self.look_at = time.monotonic() + (_ANSWER_SECONDS if pid else 0)
        if pid:
            self._ask()

    @property
    def seconds_left(self) -> float:
        """How long a worker may still take to write its stacks; 0 if none was asked to."""
        waits = self._number is not None and self._pid
        return max(self.look_at - time.monotonic(), 0.0) if waits else 0.0

    def on_readable(self) -> None:
        """The worker may have written something, which the reader has read."""
        if self._text and self._number is not None:
            self.look_at = min(self.look_at, time.monotonic() + _REST_SECONDS)

    def look(self) -> None:
        """Sends the part that is due."""
        if self.look_at <= time.monotonic():
            self.finish()

    def finish(self) -> None:
        """Sends the part that has begun, if one has, with what there is."""
        if self._number is None:
            return
        self._reader.read()  # what a worker has written that has ended since
        number, self._number = self._number, None
        self.look_at, self._reader.copy = _NEVER, None
        self._send(number, self._part("".join(self._text)[:_MOST_STACKS] or self._why_none(number)))

    def _why_none(self, number: int) -> str:
        if not self._pid:
            return "there is no worker that has called hvd.init()"
        return stacks.why_none(self._pid) if number else "it ended with the job before it answered"

    def _part(self, text: str) -> dict[str, Any]:
        part: dict[str, Any] = {"stacks": text}
        nodes, rank = self._context.nodes, self._context.rank
        if rank in nodes.firsts:
            try:
                node = read_node(self._observer, self._context.directory)
            except HvdFtError as error:
                part["stacks"] += f"\n{error}"
            else:
                part["node"] = msgspec.to_builtins(node)
        return part
