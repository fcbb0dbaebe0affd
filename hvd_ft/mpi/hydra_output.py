"""Separates the workers' output from Hydra's own in what mpirun prints.

When a process dies, Hydra prints a page in which the cause is hard to find. The launcher reports
the cause in one line instead; Hydra's lines are kept in case it cannot.
"""

import os
import re
import select
import subprocess
from collections import deque
from typing import Protocol

from hvd_ft.system.event_loop import EventLoop, Watch
from hvd_ft.system.ready import WRITABLE, is_ready

_HYDRA = (b"[mpiexec@", b"[proxy:")
# A line of Hydra's that begins in the middle of another one, as of a progress bar's.
_HYDRA_INSIDE = re.compile(rb"\[(?:mpiexec|proxy:\d+:\d+)@[\w.-]+\] ")
_RULE = b"=" * 83
_BANNER = b"=   BAD TERMINATION"
_LINES_KEPT = 30
_CHUNK_BYTES = 1 << 16
_NO_TARGET = -1


class TakesLines(Protocol):
    """A display of a job's output."""

    def output(self, line: str) -> None:
        """Called with every line that the job writes."""


class HydraFilter:
    """Removes Hydra's lines from a stream. Pure.

    Attributes:
        kept: the last of these lines.
    """

    def __init__(self) -> None:
        self.kept: deque[str] = deque(maxlen=_LINES_KEPT)
        self._held = b""  # the beginning of a line, which may be Hydra's, …
        self._before = b""  # … and the lines before it, which are Hydra's if a banner follows
        self._inside = False  # the rest of a line whose beginning was passed on
        self._in_banner = False

    def feed(self, data: bytes) -> bytes:
        """Filters the next bytes.

        Returns: The bytes to show now; the beginning of a line that may be Hydra's is held back.
        """
        shown = b""
        *lines, rest = (self._held + data).split(b"\n")
        self._held = b""
        for line in lines:
            shown += self._end_of_line(line) if self._inside else self._line(line)
            self._inside = False
        if self._inside:
            return shown + rest
        if self._may_be_hydras(rest):
            self._held = rest
            return shown
        if rest:
            self._inside = True
            shown += self._take_before() + rest
        return shown

    def rest(self) -> bytes:
        """Returns the bytes that were held back, at the end of the stream."""
        rest, self._held, self._inside = self._take_before() + self._held, b"", False
        return rest

    def _line(self, line: bytes) -> bytes:
        bare = line.rstrip(b"\r")
        if self._in_banner:
            self._in_banner = bare != _RULE
            self._keep(bare)
            return b""
        if _RULE in self._before and bare.startswith(_BANNER):
            self._before, self._in_banner = b"", True
            self._keep(bare)
            return b""
        if bare in (b"", _RULE):  # a banner begins with both
            shown = self._take_before() if bare in self._before.splitlines() else b""
            self._before += line + b"\n"
            return shown
        shown = self._take_before()
        if bare.startswith(_HYDRA):
            self._keep(bare)
            return shown
        return shown + self._end_of_line(line)

    def _end_of_line(self, line: bytes) -> bytes:
        """Returns the rest of a line whose end was lost to text that Hydra wrote into it."""
        found = _HYDRA_INSIDE.search(line)
        if found is None:
            return line + b"\n"
        self._keep(line[found.start() :].rstrip(b"\r"))
        return line[: found.start()]

    def _take_before(self) -> bytes:
        before, self._before = self._before, b""
        return before

    def _keep(self, line: bytes) -> None:
        self.kept.append(line.decode(errors="replace"))

    def _may_be_hydras(self, begin: bytes) -> bool:
        if not begin or self._in_banner:
            return True
        begins = (*_HYDRA, _RULE, _BANNER)
        return any(begin.startswith(b) or b.startswith(begin) for b in begins)


class _Stream:
    """One of mpirun's streams, copied to a descriptor without waiting for its reader."""

    def __init__(self, loop: EventLoop, target: int) -> None:
        self.filter = HydraFilter()
        self._loop = loop
        self._target = target
        self._source: int | None = None
        self._pending = b""
        self._reading: Watch | None = None
        self._writing = loop.watch(target)

    def attach(self, source: int) -> None:
        """Reads from another mpirun's pipe, which is closed at its end."""
        self._source = source
        self._reading = self._loop.watch(source, self._move)

    def _move(self) -> bool:
        """Copies as much as possible without waiting; returns whether there was anything."""
        if self._pending:
            moved = is_ready(self._target, WRITABLE) and self._write()
        else:
            moved = self._read()
        self._watch()
        return moved

    def _watch(self) -> None:
        """Waits for the next possible step: to read, or to write what was read."""
        if self._reading is not None:
            self._reading.set(on_readable=None if self._pending else self._move)
        self._writing.set(on_writable=self._move if self._pending else None)

    def finish(self) -> None:
        """Reads the available data, not to the end, as a stray process may hold the pipe open."""
        while self._read():
            pass
        self._pending += self.filter.rest()
        self._close()
        while self._pending and self._move():
            pass
        self._watch()

    def drain(self) -> None:
        """Passes on the rest, as long as that takes."""
        self._writing.end()
        while self._pending:
            self._write()

    def _read(self) -> bool:
        if self._source is None or not is_ready(self._source):
            return False
        data = os.read(self._source, _CHUNK_BYTES)
        self._pending += self.filter.feed(data) if data else self.filter.rest()
        if not data:
            self._close()
        return True

    def _write(self) -> bool:
        try:
            written = os.write(self._target, self._pending[: select.PIPE_BUF])
        except OSError:  # the reader is gone
            written = len(self._pending)
        self._pending = self._pending[written:]
        return True

    def _close(self) -> None:
        if self._source is not None and self._reading is not None:
            self._reading.end()
            os.close(self._source)
            self._source = self._reading = None


class _Lines(_Stream):
    """A stream whose lines a display shows."""

    def __init__(self, loop: EventLoop, display: TakesLines) -> None:
        super().__init__(loop, _NO_TARGET)
        self._display = display

    def _move(self) -> bool:
        return self._read()

    def _watch(self) -> None:
        """It always reads on."""

    def _read(self) -> bool:
        any_read = super()._read()
        *lines, self._pending = self._pending.split(b"\n")
        for line in lines:
            self._show(line)
        return any_read

    def drain(self) -> None:
        if self._pending:
            self._show(self._pending)
        self._pending = b""

    def _show(self, line: bytes) -> None:
        self._display.output(line.decode(errors="replace").rstrip("\r"))


class MpirunOutput:
    """The output of successive mpiruns.

    Args:
        loop: copies it.
        display: shows it line by line; None: it goes to our own standard output and error.
    """

    def __init__(self, loop: EventLoop, display: TakesLines | None) -> None:
        self._streams = (
            [_Lines(loop, display)]
            if display is not None
            else [_Stream(loop, target) for target in (1, 2)]
        )
        # One filter for both streams if they are shown together.
        self.stderr = subprocess.PIPE if display is None else subprocess.STDOUT

    @property
    def kept(self) -> list[str]:
        """Hydra's own lines, the last ones."""
        return [line for stream in self._streams for line in stream.filter.kept]

    def attach(self, mpirun: "subprocess.Popen[bytes]") -> None:
        """Reads the pipes of a process that was started with `stdout=PIPE` and our `stderr`."""
        for stream, pipe in zip(self._streams, (mpirun.stdout, mpirun.stderr), strict=False):
            assert pipe is not None
            stream.attach(os.dup(pipe.fileno()))
            pipe.close()

    def finish(self) -> None:
        """Reads what an mpirun that has ended has left."""
        for stream in self._streams:
            stream.finish()

    def drain(self) -> None:
        """Passes on the rest, as long as that takes."""
        for stream in self._streams:
            stream.drain()
