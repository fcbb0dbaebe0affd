"""Life-lines: the connections from the shims on all nodes to the launcher of their job.

A shim reports over its line whether it has an agent. So when an agent has died the launcher knows
that workers wait for new agents. When the launcher has died, all shims see their lines end and
their connections refused, and end the job. Once a second the launcher asks each host, whose answer
renews the host's lease.

Both sides first prove that they know the key that the launcher has generated for its job (proof.py,
authenticator.py). lifeline_messages.py has the messages after that.
"""

from __future__ import annotations

import functools
import secrets
import socket
from typing import Protocol

from hvd_ft.errors import HvdFtError
from hvd_ft.job.authenticator import MOST_STRANGERS, Authenticator
from hvd_ft.job.lifeline_messages import FromLauncher, FromShim, parse_from_shim, to_wire
from hvd_ft.job.ports import Ports, listen
from hvd_ft.system.channel import Channel
from hvd_ft.system.event_loop import EventLoop, Watch
from hvd_ft.system.open_files import allow_open_files
from hvd_ft.system.tcp import set_timeouts

_OTHER_DESCRIPTORS = 64  # of a launcher, besides one a rank
_SEND_SECONDS = 2.0  # for a shim to make room for a message
_KEY_BYTES = 32


class Listener(Protocol):
    """Hears what comes over life-lines."""

    def said(self, line: int, message: FromShim) -> None:
        """A shim has said something over the line of this number."""

    def line_ended(self, line: int, *, hung_up: bool) -> None:
        """A line has ended: the shim has closed it, or the network has, or it had an error."""


def check_descriptors(ranks: int) -> None:
    """Sees to it that this process may have a descriptor for the line of every rank.

    Raises:
        HvdFtError: it may not.
    """
    limit = allow_open_files(ranks + _OTHER_DESCRIPTORS + MOST_STRANGERS)
    if limit < ranks + _OTHER_DESCRIPTORS:
        raise HvdFtError(
            f"the launcher needs {ranks + _OTHER_DESCRIPTORS} open files for {ranks} ranks, and "
            f"may have {limit}: raise the hard limit (ulimit -Hn)"
        )


class LifeLines:
    """The launcher's ends of all lines, which it numbers.

    Args:
        loop: receives messages and accepts connections.
        listens_at: an address of this host; "": all of them, and shims connect to its name.
        lease_seconds: how long a host may be silent before its lines end.
        listener: hears what comes.
        ports: where to listen; None: at any port.

    Raises:
        HvdFtError: no such port is free.

    Attributes:
        address: host, port and key, for the shims.
    """

    def __init__(
        self,
        loop: EventLoop,
        listens_at: str,
        lease_seconds: float,
        listener: Listener,
        ports: Ports | None = None,
    ) -> None:
        self._loop = loop
        self._key = secrets.token_hex(_KEY_BYTES)
        self._lease = lease_seconds
        self._listener = listener
        server = listen(listens_at, ports)
        host = listens_at or socket.gethostname()
        self.address = f"{host}:{server.getsockname()[1]}:{self._key}"
        self._authenticator = Authenticator(loop, server, self._key, self._add)
        self._lines: dict[int, tuple[Channel, Watch]] = {}
        self._number = 0

    def send(self, line: int, message: FromLauncher) -> None:
        """Sends a message over a line, if there still is one."""
        if line in self._lines:
            try:
                self._lines[line][0].send(to_wire(message))
            except OSError:  # it has ended, or has not been read for long
                self._lose(line, hung_up=False)

    def tell(self, message: FromLauncher) -> None:
        """Sends a message over all lines."""
        for line in list(self._lines):
            self.send(line, message)

    def end(self, line: int) -> None:
        """Ends a line, if there still is one."""
        if line in self._lines:
            channel, watch = self._lines.pop(line)
            watch.end()
            channel.close()

    def close(self) -> None:
        """Ends all lines, which ends what is left of the job."""
        self._authenticator.close()
        for line in list(self._lines):
            self.end(line)

    def _add(self, connection: socket.socket) -> None:
        connection.settimeout(_SEND_SECONDS)
        set_timeouts(connection, self._lease)
        self._number += 1
        channel = Channel(connection)
        watch = self._loop.watch(channel, functools.partial(self._hear, self._number))
        self._lines[self._number] = channel, watch

    def _hear(self, line: int) -> None:
        try:
            messages = self._lines[line][0].receive()
            said = [parse_from_shim(message) for message in messages or ()]
        except (OSError, ValueError):  # an error of the network, or of a shim
            self._lose(line, hung_up=False)
            return
        for message in said:
            if line in self._lines:  # or what came before has ended it
                self._listener.said(line, message)
        if messages is None:
            self._lose(line, hung_up=True)

    def _lose(self, line: int, *, hung_up: bool) -> None:
        if line in self._lines:
            self.end(line)
            self._listener.line_ended(line, hung_up=hung_up)
