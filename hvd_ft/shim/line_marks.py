"""Marks each line of a rank's output with the rank and the stream, as horovodrun does. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

# After "\n", or after a "\r" that no "\n" follows: a progress bar ends its updates so.
_LINE_END = re.compile(rb"(?<=\n)|(?<=\r)(?!\n)")
_LONGEST_BYTES = 64 << 10  # an unfinished line of this length is passed on


class LineMarks:
    """Puts a mark before every line of a stream.

    An unfinished line waits for its end, so that the lines of several ranks stay apart.

    Args:
        mark: returns the mark, called once for all lines that come together.
    """

    def __init__(self, mark: Callable[[], bytes]) -> None:
        self._mark = mark
        self._held = b""  # the beginning of an unfinished line
        self._inside = False  # the beginning of the present line was passed on
        self._returned = False  # the latest line ended with "\r", so "\n" would belong to it

    def feed(self, data: bytes) -> bytes:
        """Returns the lines that are finished by these bytes, each with its mark."""
        if not data:
            return b""
        mark = self._mark()
        marked = []
        if self._returned and data.startswith(b"\n"):
            marked, data = [b"\n"], data[1:]
        *lines, self._held = _LINE_END.split(self._held + data)
        for line in lines:
            marked += [line] if self._inside else [mark, line]
            self._inside = False
        if len(self._held) >= _LONGEST_BYTES:
            marked += [self._held] if self._inside else [mark, self._held]
            self._held, self._inside = b"", True
        self._returned = not (self._held or self._inside) and data.endswith(b"\r")
        return b"".join(marked)

    def rest(self) -> bytes:
        """Returns the unfinished line and ends it: its process has ended."""
        if not (self._held or self._inside):
            return b""
        line = (b"" if self._inside else self._mark()) + self._held + b"\n"
        self._held, self._inside = b"", False
        return line
