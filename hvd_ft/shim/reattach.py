"""How an agent of a new generation reattaches to the shim of an earlier one.

The shim listens at a socket in the job's directory. The new agent sends its generation, its
standard streams, and its pidfd: it may be dead before the shim reads that. If the generation is
new, the shim answers with the worker's state, and the connection becomes the channel between the
two.
"""

import contextlib
import os
import signal
import socket
from collections.abc import Callable
from typing import NamedTuple

from hvd_ft.errors import HvdFtError
from hvd_ft.shim.messages import Reattached, Takeover, parse_report, to_wire
from hvd_ft.system.channel import Channel
from hvd_ft.system.event_loop import EventLoop
from hvd_ft.system.handoff import STREAMS, send_order, socket_path, take_order
from hvd_ft.system.listener import Listener
from hvd_ft.system.peer_credentials import peer_of
from hvd_ft.system.pidfd import has_ended, pidfd_of_this_process, send_signal
from hvd_ft.system.say import say

# A shim that is killing the descendants of a dead worker may take some seconds.
_ANSWER_SECONDS = 15.0
_DEATH_SECONDS = 1.0  # from the end of a dying shim's connection to its own
_KILL_SECONDS = 10.0  # from SIGKILL to its end


class NewAgent(NamedTuple):
    """An agent that wants to take the shim over.

    Attributes:
        connection: to it.
        pid: its process id, for messages.
        takeover: what it says.
        streams: its standard streams.
        pidfd: its own; it may be dead already.
    """

    connection: socket.socket
    pid: int
    takeover: Takeover
    streams: list[int]
    pidfd: int

    def refuse(self) -> None:
        """Ends the connection."""
        self.connection.close()
        for descriptor in (*self.streams, self.pidfd):
            os.close(descriptor)


class Reattachment(NamedTuple):
    """What a new agent gets.

    Attributes:
        channel: to the shim.
        found: the shim's first report.
        pidfd: of the shim.
    """

    channel: Channel
    found: Reattached
    pidfd: int


class ReattachSocket:
    """The shim's end: a socket to which new agents connect.

    Args:
        loop: accepts them.
        directory: of the job.
        rank: of the shim.
        on_agent: called with each.
    """

    def __init__(
        self, loop: EventLoop, directory: str, rank: int, on_agent: Callable[[NewAgent], object]
    ) -> None:
        self._on_agent = on_agent
        listener = socket.socket(socket.AF_UNIX)
        mask = os.umask(0o177)
        try:
            with socket_path(directory, _name(rank)) as path:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)  # left by a shim that was killed
                listener.bind(path)
        finally:
            os.umask(mask)
        listener.listen()
        self._listener = Listener(loop, listener, self._receive)

    def close(self) -> None:
        """Listens no more."""
        self._listener.close()

    def _receive(self, connection: socket.socket, _address: object) -> None:
        if (taken := take_order(connection, Takeover, STREAMS + 1)) is None:
            return
        takeover, (*streams, pidfd) = taken
        self._on_agent(NewAgent(connection, peer_of(connection).pid, takeover, streams, pidfd))


def answer_seconds(adoption_timeout_seconds: float) -> float:
    """Returns how long a new agent waits for the shim's answer before it takes it for stopped.

    Args:
        adoption_timeout_seconds: for which shims wait for a new agent. Agents that have not begun
            after a third of it are killed (launcher/machine/job_generation.py), so this is less.
    """
    return min(_ANSWER_SECONDS, adoption_timeout_seconds / 4)


def reattach(
    directory: str, rank: int, takeover: Takeover, seconds: float = _ANSWER_SECONDS
) -> Reattachment | None:
    """Connects to the shim of a rank.

    Args:
        directory: of the job.
        rank: of the caller.
        takeover: the caller's first message.
        seconds: for the shim to answer.

    Returns:
        The channel to the shim, its first report, and its pidfd; None if there is no shim, it dies
        before it answers, or it does not answer (it was stopped, say), and so was killed.

    Raises:
        HvdFtError: the shim has an agent of this generation, or a later one, or cannot be killed.
    """
    end = socket.socket(socket.AF_UNIX)
    end.settimeout(seconds)
    channel = Channel(end)
    try:
        with socket_path(directory, _name(rank)) as path:
            end.connect(path)
    except (FileNotFoundError, ConnectionRefusedError):
        channel.close()
        return None
    pidfd = -1
    try:
        # Before it answers: whoever answers was alive then, so the number means no other process.
        pidfd = os.pidfd_open(peer_of(end).pid)
        with pidfd_of_this_process() as own:
            send_order(end, to_wire(takeover), [0, 1, 2, own])
        first = channel.receive_first()  # whatever follows is for the agent's loop
        if first is None:
            raise ConnectionResetError("it has closed the connection")
        found = parse_report(first)
        if not isinstance(found, Reattached):
            raise ValueError(f"it answers {found}")
    except (OSError, ValueError) as error:
        channel.close()
        if pidfd < 0:
            dead = isinstance(error, ProcessLookupError)
        else:
            dead = _is_gone(rank, pidfd, silent=isinstance(error, TimeoutError))
            os.close(pidfd)
        if dead:
            return None
        raise HvdFtError(
            f"the shim of rank {rank} refuses an agent of generation {takeover.generation} "
            f"({error}): start the job again"
        ) from error
    end.settimeout(None)
    return Reattachment(channel, found, pidfd)


def _is_gone(rank: int, pidfd: int, *, silent: bool) -> bool:
    """Returns whether a shim that was not reattached to is dead, for which a silent one is killed.

    An agent that has a shim does the same (agent/shim_care.py): its worker dies with it.
    """
    if not silent:
        return has_ended(pidfd, _DEATH_SECONDS)
    send_signal(pidfd, signal.SIGKILL)
    if not has_ended(pidfd, _KILL_SECONDS):
        return False
    say(f"the shim of rank {rank} did not answer new agents (SIGSTOP?), so it was killed")
    return True


def _name(rank: int) -> str:
    return f"shim-{rank}"
