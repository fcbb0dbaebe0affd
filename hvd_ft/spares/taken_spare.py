"""The rank's shim's view of a warm spare that has become this rank's worker."""

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Sequence

from hvd_ft.errors import HvdFtError
from hvd_ft.job.python_command import PythonCommand
from hvd_ft.spares.handover import takeable
from hvd_ft.system.channel import Channel, Message
from hvd_ft.system.handoff import TIMEOUT_SECONDS, check_peer, send_order, socket_path

_DEATH_SECONDS = 5.0  # limit for the spare to die when its shim is gone


class TakenSpare:
    """The connection to its shim.

    Args:
        connection: to the shim.
        started: the shim's report.
        pidfd: of the worker.
    """

    def __init__(self, connection: Channel, started: Message, pidfd: int) -> None:
        self._connection = connection
        self._pidfd = pidfd
        self.pid: int = started["pid"]
        self.started_ns: int = started["time_ns"]
        self.begun = False

    @classmethod
    def take(
        cls,
        directory: str,
        argv: Sequence[str],
        env: dict[str, str],
        cwd: str,
        outputs: Sequence[int],
    ) -> "TakenSpare | None":
        """Takes a spare and prepares it to run a command.

        Args:
            directory: of the job.
            argv: the command.
            env: its whole environment.
            cwd: its working directory.
            outputs: its standard output and standard error; its input is the caller's.

        Returns:
            The worker, or None if no spare fits.
        """
        names = takeable(os.listdir(directory))
        if not names:
            return None
        try:
            command = PythonCommand.parse(argv)
        except HvdFtError:
            return None
        order = {
            "target": command.target,
            "is_module": command.is_module,
            "arguments": list(command.arguments),
            "env": env,
            "cwd": cwd,
        }
        for name in names:
            with socket_path(directory, name) as path:
                taken = cls._take(path, order, [0, *outputs])
            if taken is not None:
                return taken
        return None

    @classmethod
    def _take(cls, path: str, order: Message, streams: Sequence[int]) -> "TakenSpare | None":
        end = socket.socket(socket.AF_UNIX)
        end.settimeout(TIMEOUT_SECONDS)
        connection = Channel(end)
        try:
            end.connect(path)
            check_peer(end)
            send_order(end, order, streams)
            started = connection.receive()
            if started:
                pidfd = os.pidfd_open(started[0]["pid"])
                end.settimeout(None)
                return cls(connection, started[0], pidfd)
        except OSError:  # another shim was faster, or it has died
            pass
        connection.close()
        return None

    def fileno(self) -> int:
        """Returns the descriptor to wait on: readable when `ended` has something to read."""
        return self._connection.fileno()

    def go(self) -> None:
        """Lets it begin, now that its pid is published."""
        self.begun = True
        with contextlib.suppress(OSError):
            self._connection.send({"do": "go"})

    def kill(self, number: int) -> None:
        """Sends a signal to the worker's process group."""
        with contextlib.suppress(OSError):
            self._connection.send({"do": "kill", "signal": number})

    def signal(self, number: int) -> None:
        """Sends a signal to only the worker."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def ended(self) -> tuple[int, int] | None:
        """Reads the spare shim's report.

        Returns:
            Once the worker is dead, its status as from wait(2) and when it died (CLOCK_MONOTONIC,
            ns). If the shim was killed, so was the worker.
        """
        messages = self._connection.receive()
        if messages:
            self.end()
            return messages[0]["status"], messages[0]["time_ns"]
        if messages is None:
            self.end()
            return int(signal.SIGKILL), time.monotonic_ns()
        return None

    def end(self) -> None:
        """Ends the worker, if it is still alive, and waits until it is dead."""
        self._connection.close()
        if not select.select([self._pidfd], [], [], 0)[0]:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            select.select([self._pidfd], [], [], _DEATH_SECONDS)
        os.close(self._pidfd)
