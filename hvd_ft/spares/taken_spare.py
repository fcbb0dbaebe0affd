"""The rank's shim's view of a warm spare that has become this rank's worker."""

import contextlib
import os
import signal
import socket
import time
from collections.abc import Sequence

import msgspec

from hvd_ft.errors import HvdFtError
from hvd_ft.job.python_command import PythonCommand
from hvd_ft.spares.handover import takeable
from hvd_ft.spares.messages import Go, Kill, SpareOrder, SpareStarted, parse_end
from hvd_ft.system.channel import Channel
from hvd_ft.system.handoff import (
    TIMEOUT_SECONDS,
    check_peer,
    receive_order,
    send_order,
    socket_path,
)
from hvd_ft.system.pidfd import has_ended, send_signal

_DEATH_SECONDS = 5.0  # limit for the spare to die when its shim is gone


class TakenSpare:
    """The connection to its shim.

    Args:
        connection: to the shim.
        started: the shim's report.
        pidfd: of the worker, from its parent: it may be dead already.
    """

    def __init__(self, connection: Channel, started: SpareStarted, pidfd: int) -> None:
        self._connection = connection
        self._pidfd = pidfd
        self.pid = started.pid
        self.started_ns = started.time_ns
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
        order = SpareOrder(command.target, command.is_module, list(command.arguments), env, cwd)
        for name in names:
            with socket_path(directory, name) as path:
                taken = cls._take(path, order, [0, *outputs])
            if taken is not None:
                return taken
        return None

    @classmethod
    def _take(cls, path: str, order: SpareOrder, streams: Sequence[int]) -> "TakenSpare | None":
        end = socket.socket(socket.AF_UNIX)
        end.settimeout(TIMEOUT_SECONDS)
        try:
            end.connect(path)
            check_peer(end)
            send_order(end, msgspec.to_builtins(order), streams)
            started, (pidfd,) = receive_order(end, SpareStarted, 1)
        except OSError:  # another shim was faster, or it has died
            end.close()
            return None
        end.settimeout(None)
        return cls(Channel(end), started, pidfd)

    def fileno(self) -> int:
        """Returns the descriptor to wait on: readable when `ended` has something to read."""
        return self._connection.fileno()

    def go(self) -> None:
        """Lets it begin, now that its pid is published."""
        self.begun = True
        with contextlib.suppress(OSError):
            self._connection.send(msgspec.to_builtins(Go()))

    def kill(self, number: int) -> None:
        """Sends a signal to the worker's process group."""
        with contextlib.suppress(OSError):
            self._connection.send(msgspec.to_builtins(Kill(number)))

    def signal(self, number: int) -> None:
        """Sends a signal to only the worker."""
        send_signal(self._pidfd, number)

    def ended(self) -> tuple[int, int] | None:
        """Reads the spare shim's report.

        Returns:
            Once the worker is dead, its status as from wait(2) and when it died (CLOCK_MONOTONIC,
            ns). If the shim was killed, so was the worker.
        """
        messages = self._connection.receive()
        if messages:
            self.end()
            end = parse_end(messages[0])
            return end.status, end.time_ns
        if messages is None:
            self.end()
            return int(signal.SIGKILL), time.monotonic_ns()
        return None

    def end(self) -> None:
        """Ends the worker, if it is still alive, and waits until it is dead."""
        self._connection.close()
        send_signal(self._pidfd, signal.SIGKILL)
        has_ended(self._pidfd, _DEATH_SECONDS)
        os.close(self._pidfd)
