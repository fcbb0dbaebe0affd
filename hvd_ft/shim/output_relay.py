"""Relays the workers' output through the shim to the agent's output.

An agent's standard streams lead to MPI's launcher, which waits until every holder has closed them,
and breaks them when it dies. So workers get the shim's pipes instead, which outlive an agent:
output printed while there is no agent waits there. Here lines get their marks, and go to the rank's
files as well.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import select
import time

from hvd_ft.shim.line_marks import LineMarks
from hvd_ft.shim.output_file import OutputFile
from hvd_ft.system.event_loop import EventLoop

_ROOM_BYTES = 1 << 20  # this much output can wait before its writer blocks
_CHUNK_BYTES = select.PIPE_BUF  # a writable pipe accepts this much at once
_FLUSH_SECONDS = 2.0
_FLUSH_LIMIT_SECONDS = 10.0
_REST_SECONDS = 0.02  # limit for the rest of a line to come
_LOST_SECONDS = 10.0  # limit for an agent to die when its output is no longer read
_TARGETS = {1: "stdout", 2: "stderr"}


class OutputRelay:
    """Two pipes, for the standard output and the standard error of all that a shim starts.

    When the reader is gone, output waits for a new one (`attach`), but not for long: then it is
    lost.

    Args:
        loop: moves the output.

    Attributes:
        ends: the descriptors that children get as standard output and error.
    """

    def __init__(self, loop: EventLoop) -> None:
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in _TARGETS]
        self._marks: dict[int, LineMarks] = {}
        self._files: dict[int, OutputFile] = {}
        self.ends = [end for _, end in pipes]
        readers = [reader for reader, _ in pipes]
        self._targets = dict(zip(readers, _TARGETS, strict=True))
        self._pending = dict.fromkeys(self._targets, b"")
        for reader in self._targets:
            os.set_blocking(reader, False)
            with contextlib.suppress(OSError):
                fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, _ROOM_BYTES)
        self._loop = loop
        self._lost = loop.timer(self._give_up)
        self._readers = {reader: loop.watch(reader) for reader in self._targets}
        self._writers = {reader: loop.watch(target) for reader, target in self._targets.items()}
        self._attached = True
        self._watch()

    def shape(self, rank: int, prefix: str, folder: str) -> None:
        """Determines what becomes of the output; called before anything is printed.

        Args:
            rank: of the worker.
            prefix: as in the setting `output_prefix`.
            folder: of the files with a copy of the output; "": there are none.
        """
        for reader, target in self._targets.items():
            name = _TARGETS[target]
            if prefix != "none" and reader not in self._marks:
                self._marks[reader] = LineMarks(functools.partial(_mark, rank, name, prefix))
            if folder and reader not in self._files:
                self._files[reader] = OutputFile(f"{folder}/{name}")

    def attach(self, descriptors: list[int]) -> None:
        """Sends everything to these descriptors, which become this process's own 1 and 2."""
        for descriptor, target in zip(descriptors, _TARGETS, strict=True):
            os.dup2(descriptor, target)
            os.close(descriptor)
        self._attached = True
        self._lost.clear()
        self._watch()

    def detach(self) -> None:
        """Holds all output back; meanwhile this process's own output is lost."""
        self._attached = False
        self._lost.clear()
        self._watch()
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        for target in _TARGETS:
            os.dup2(nowhere, target)
        os.close(nowhere)

    def move(self) -> bool:
        """Moves as much as possible without waiting; returns whether there was anything."""
        moved = False
        for reader, target in self._targets.items():
            if not self._attached:
                break
            if not self._pending[reader]:
                self._pending[reader] = self._shaped(reader, _read(reader))
            pending = self._pending[reader]
            if pending and select.select([], [target], [], 0)[1]:
                # Whole lines, as the output of several ranks is merged.
                end = pending.rfind(b"\n", 0, _CHUNK_BYTES) + 1
                try:
                    written = os.write(target, pending[: end or _CHUNK_BYTES])
                except OSError:  # the reader is gone
                    self.detach()
                    self._lost.set(self._loop.now() + _LOST_SECONDS)
                    break
                self._pending[reader] = pending[written:]
                moved = True
        self._watch()
        return moved

    def _shaped(self, reader: int, data: bytes) -> bytes:
        """Returns what is shown of these bytes now; a copy goes to the file, if there is one."""
        if file := self._files.get(reader):
            file.write(data)
        marks = self._marks.get(reader)
        return marks.feed(data) if marks else data

    def flush(self, *, unfinished: bool = False) -> None:
        """Moves all output within 10 s; gives up if none is read for 2 s.

        Args:
            unfinished: whether lines without an end are moved too, because the process that would
                have ended them has ended.
        """
        limit = time.monotonic() + _FLUSH_LIMIT_SECONDS
        deadline = time.monotonic() + _FLUSH_SECONDS
        while True:
            while self.move():
                deadline = min(time.monotonic() + _FLUSH_SECONDS, limit)
                if deadline == limit <= time.monotonic():
                    return
            if unfinished and not any(self._pending.values()):
                unfinished = False
                self._pending.update({r: marks.rest() for r, marks in self._marks.items()})
                continue
            writers = [self._targets[r] for r, pending in self._pending.items() if pending]
            left = deadline - time.monotonic()
            if not self._attached or not writers or left <= 0:
                return
            if not select.select([], writers, [], left)[1]:
                return

    def close(self) -> None:
        """Waits until the files are written, if there are any."""
        for file in self._files.values():
            file.close()

    def _give_up(self) -> None:
        """Drops everything from now on."""
        self.attach([os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC) for _ in _TARGETS])

    def _watch(self) -> None:
        """Waits for the next possible step of each stream: to read, or to write what was read."""
        for reader, pending in self._pending.items():
            may_read, may_write = self._attached and not pending, self._attached and pending
            self._readers[reader].set(on_readable=self.move if may_read else None)
            self._writers[reader].set(on_writable=self.move if may_write else None)


def _mark(rank: int, stream: str, prefix: str) -> bytes:
    """Returns what horovodrun writes before a line: `[3]<stdout>:`, with the time if asked for."""
    moment = time.asctime() if prefix == "time" else ""
    return f"{moment}[{rank}]<{stream}>:".encode()


def _read(reader: int) -> bytes:
    """Returns what is there. Waits for a newline, which unbuffered Python writes separately."""
    data = b""
    left, deadline = 0.0, time.monotonic() + _REST_SECONDS
    while select.select([reader], [], [], left)[0] and (more := os.read(reader, _ROOM_BYTES)):
        data += more
        left = deadline - time.monotonic()
        if data.endswith(b"\n") or len(data) >= _ROOM_BYTES or left <= 0:
            break
    return data
