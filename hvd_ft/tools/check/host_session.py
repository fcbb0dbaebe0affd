"""A conversation with the probe on a host, which is started there as mpirun starts agents."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping

from hvd_ft.errors import HvdFtError
from hvd_ft.launcher.reach import why_ended
from hvd_ft.mpi.environment import mpiexec_command
from hvd_ft.tools.check.host_probe import Answer, Request, parse, to_line

_PROBE = "hvd_ft.tools.check.host_probe"
_CHUNK = 1 << 16
_MOST_BYTES = 1 << 20  # of an answer


class HostSession:
    """A process on a host that does what it is asked.

    Args:
        host: its name.
        environment: the whole one of mpirun.
    """

    def __init__(self, host: str, environment: Mapping[str, str]) -> None:
        self.host = host
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._held = b""
        command = [*mpiexec_command(1, environment), "-hosts", host, sys.executable, "-m", _PROBE]
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )

    def ask(self, request: Request, seconds: float) -> Answer:
        """Asks the host for something, and waits for the answer.

        Args:
            request: what it is to do.
            seconds: for which to wait.

        Raises:
            HvdFtError: it does not answer, or cannot do it.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended: reading says why
            self._process.stdin.write(to_line(request))
            self._process.stdin.flush()
        deadline = time.monotonic() + seconds
        while True:
            line = self._line(deadline, seconds)
            if line.startswith(b"{"):  # others are the launcher's, or of MPI's own
                break
        try:
            told = parse(line)
        except ValueError as error:
            raise HvdFtError(
                f"it answers with something else ({error}): install the same hvd_ft there"
            ) from None
        if told.error:
            raise HvdFtError(told.error)
        return told

    def _line(self, deadline: float, seconds: float) -> bytes:
        assert self._process.stdout is not None
        source = self._process.stdout.fileno()
        while b"\n" not in self._held:
            left = max(deadline - time.monotonic(), 0.0)
            if not select.select([source], [], [], left)[0]:
                raise HvdFtError(
                    f"it does not answer within {seconds:g} s; see what else runs there"
                )
            data = os.read(source, _CHUNK)
            if not data or len(self._held) > _MOST_BYTES:
                raise HvdFtError(self._reason())
            self._held += data
        line, _, self._held = self._held.partition(b"\n")
        return line

    def _reason(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1.0)
        self._errors.seek(0)
        code = self._process.poll()
        return why_ended(self._errors.read(), -signal.SIGKILL if code is None else code)

    def close(self) -> None:
        """Ends it."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream:
                with contextlib.suppress(OSError):
                    stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1.0)  # it ends with its stdin
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._errors.close()
