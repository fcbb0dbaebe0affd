"""What a job writes, line by line."""

from __future__ import annotations

import os
import select
from typing import IO, Protocol


class TakesLines(Protocol):
    """Something that shows a job's output."""

    def output(self, line: str) -> None:
        """Is called with every line the job writes."""


class OutputLines:
    """Cuts a stream of bytes into lines for a display; without a stream it does nothing."""

    def __init__(self, stream: IO[bytes] | None, display: TakesLines | None) -> None:
        self._stream = stream
        self._display = display
        self._rest = b""

    def pass_on(self) -> bool:
        """Reads what is there, or waits for it; returns whether there can be more."""
        assert self._stream and self._display
        data = os.read(self._stream.fileno(), 65536)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._display.output(line.decode(errors="replace").rstrip("\r"))
        return bool(data)

    def pass_on_the_rest(self) -> None:
        """Reads to the end, or as far as there is something: a stray process may hold the pipe."""
        if not self._stream or not self._display:
            return
        while select.select([self._stream], [], [], 0)[0] and self.pass_on():
            pass
        if self._rest:
            self._display.output(self._rest.decode(errors="replace"))
