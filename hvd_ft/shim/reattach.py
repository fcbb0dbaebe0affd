"""How an agent of a new generation reattaches to the shim that an older one has left.

The shim listens at a socket in the job's directory. The new agent sends its generation and its
standard streams. If the generation is new, the shim answers with the worker's state, and the
connection becomes the channel between the two.
"""

import contextlib
import os
import socket

from hvd_ft.errors import HvdFtError
from hvd_ft.shim.messages import Reattached, Takeover, parse_report, parse_takeover, to_wire
from hvd_ft.system.channel import Channel
from hvd_ft.system.handoff import (
    accept_order,
    send_order,
    socket_path,
)

# A shim that is killing the descendants of a dead worker may take some seconds.
_ANSWER_SECONDS = 15.0


class ReattachSocket:
    """The shim's end: a socket to which new agents connect.

    Args:
        directory: of the job.
        rank: of the shim.
    """

    def __init__(self, directory: str, rank: int) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        mask = os.umask(0o177)
        try:
            with socket_path(directory, _name(rank)) as path:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)  # left by a shim that was killed
                self._listener.bind(path)
        finally:
            os.umask(mask)
        self._listener.listen()

    def fileno(self) -> int:
        """Returns the descriptor to wait on: readable when `receive` has something to do."""
        return self._listener.fileno()

    def receive(self) -> tuple[socket.socket, Takeover, list[int]] | None:
        """Takes a connection.

        Returns:
            It, what the new agent says, and its standard streams; None if it says nothing proper.
        """
        if (accepted := accept_order(self._listener)) is None:
            return None
        connection, order, streams = accepted
        try:
            return connection, parse_takeover(order), streams
        except ValueError:
            connection.close()
            for stream in streams:
                os.close(stream)
            return None


def reattach(
    directory: str,
    rank: int,
    generation: int,
    lease_seconds: float,
    launcher: str | None,
    *,
    node_lease: float | None = None,
) -> tuple[Channel, Reattached] | None:
    """Connects to the shim of a rank.

    Args:
        directory: of the job.
        rank: of the caller.
        generation: of the caller.
        lease_seconds: so long the caller may be silent.
        launcher: its address, which is new if the job is resumed.
        node_lease: seconds for which the processes of this host may act unheard; None: for ever.

    Returns:
        The channel, and the shim's first report; None if there is no shim.

    Raises:
        HvdFtError: the shim has an agent of this generation, or a later one, or does not answer.
    """
    end = socket.socket(socket.AF_UNIX)
    end.settimeout(_ANSWER_SECONDS)
    channel = Channel(end)
    try:
        with socket_path(directory, _name(rank)) as path:
            end.connect(path)
    except (FileNotFoundError, ConnectionRefusedError):
        channel.close()
        return None
    try:
        takeover = Takeover(generation, lease_seconds, launcher, node_lease)
        send_order(end, to_wire(takeover), [0, 1, 2])
        while not (wires := channel.receive()):
            if wires is None:
                raise ConnectionResetError("it has closed the connection")
        found = parse_report(wires[0])
        if not isinstance(found, Reattached):
            raise ValueError(f"it answers {found}")
    except (OSError, ValueError) as error:
        channel.close()
        raise HvdFtError(
            f"the shim of rank {rank} refuses an agent of generation {generation} "
            f"({error}): start the job again"
        ) from error
    end.settimeout(None)
    return channel, found


def _name(rank: int) -> str:
    return f"shim-{rank}"
