"""Life-lines: the connections from the shims on all nodes to the launcher of their job.

A shim reports over its line whether it has an agent. So when an agent has died the launcher knows
that workers wait for new agents. When the launcher has died, all shims see their lines end and
their connections refused, and end the job. Once a second the launcher asks each host, whose answer
renews the host's lease (host_leases.py).

Both sides first prove that they know the key that the launcher has generated for its job (proof.py,
authenticator.py). Messages after that:

                            shim: (rank, host, generation, orphaned, exit_code, epoch), whenever it
                                changes
launcher: (ask)             shim: (answer, facts): the number asked, what its agent counts
launcher: (lease) the number of an answer: so long may the host act (act_lease.py); only in jobs
          with spare hosts or that may shrink, where every shim is asked
          (interrupt)                (interrupted): the worker has got SIGINT
          (preempt) a checkpoint is to be written, and then the job ends
          (stop)                     the number of the signal that ends the job
          (note) something that rank 0's agent writes into the report (over)
          nobody comes any more; whether the job's files are to stay
shim:  (note)
"""

from __future__ import annotations

import functools
import secrets
import socket
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol

from hvd_ft.errors import HvdFtError
from hvd_ft.job.authenticator import MOST_STRANGERS, Authenticator
from hvd_ft.job.ports import Ports, listen
from hvd_ft.system.channel import Channel, Message
from hvd_ft.system.event_loop import EventLoop, Watch
from hvd_ft.system.open_files import allow_open_files
from hvd_ft.system.tcp import set_timeouts
from hvd_ft.system.wire import convert

_OTHER_DESCRIPTORS = 64  # of a launcher, besides one a rank
_SEND_SECONDS = 2.0  # for a shim to make room for a message
_KEY_BYTES = 32


@dataclass(frozen=True)
class ShimStatus:
    """The latest message of the shim at the other end of a line.

    Attributes:
        rank: whose shim it is.
        host: where it is.
        generation: of its agent.
        orphaned: whether that agent is dead.
        exit_code: of the job, once it is over.
        epoch: in which its host took its place in the job.
        lack: what of memory was used up, if the kernel has killed where its agent died; else "".
    """

    rank: int
    host: str
    generation: int
    orphaned: bool
    exit_code: int | None = None
    epoch: int = 0
    lack: str = ""

    @classmethod
    def of(cls, message: Message) -> ShimStatus:
        """Parses a shim's message.

        Raises:
            ValueError: it is not such a message.
        """
        status: ShimStatus = convert(message, cls)
        return status


@dataclass(frozen=True)
class Answer:
    """A shim's answer.

    Attributes:
        host: where it is.
        number: of the question. facts: its agent's latest counts; None if the agent leads no node.
    """

    host: str
    number: int
    facts: Any


class Gate(Protocol):
    """Decides which shims belong to a job whose hosts need leases, and grants these."""

    def admits(self, shim: ShimStatus) -> bool:
        """Returns whether the shim's host still has its place; if not, the shim is told to end."""

    def grants(self, shim: ShimStatus) -> bool:
        """Returns whether the shim's lease is renewed, as it has answered."""


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
    """The launcher's ends of all lines.

    Args:
        loop: receives messages and accepts connections.
        listens_at: an address of this host; "": all of them, and shims connect to its name.
        lease_seconds: how long a host may be silent before its lines end.
        ports: where to listen; None: at any port.

    Raises:
        HvdFtError: no such port is free.

    Attributes:
        address: host, port and key, for the shims.
        exit_code: of the job, once a shim has reported it.
        hosts: the ranks of each host that has ever had a line.
        hung_up: the hosts that ended their last line themselves: no process of the job is left
            there.
        interrupted: the ranks whose workers have received SIGINT.
        gate: in a job with spare hosts or that may shrink; None: hosts need no leases.
    """

    gate: Gate | None = None

    def __init__(
        self, loop: EventLoop, listens_at: str, lease_seconds: float, ports: Ports | None = None
    ) -> None:
        self._loop = loop
        self._key = secrets.token_hex(_KEY_BYTES)
        self._lease = lease_seconds
        listener = listen(listens_at, ports)
        host = listens_at or socket.gethostname()
        self.address = f"{host}:{listener.getsockname()[1]}:{self._key}"
        self._authenticator = Authenticator(loop, listener, self._key, self._add)
        self._watches: dict[Channel, Watch] = {}
        self._shims: dict[Channel, ShimStatus | None] = {}
        self._answers: list[Answer] = []
        self.exit_code: int | None = None
        self.hosts: dict[str, set[int]] = {}
        self.hung_up: set[str] = set()
        self.interrupted: set[int] = set()

    @property
    def shims(self) -> list[ShimStatus | None]:
        """The latest status of each shim that has a line; None before its first message."""
        return list(self._shims.values())

    def ask(self, number: int, silent: Collection[str]) -> None:
        """Asks every host, through its first rank with a line; a silent one through all ranks.

        If hosts need leases, all shims are asked: each has a lease of its own.

        Args:
            number: of the question.
            silent: hosts that have not answered for some time.
        """
        first: dict[str, tuple[int, Channel]] = {}
        for channel, shim in list(self._shims.items()):
            if shim is None:
                continue
            if shim.host in silent or self.gate:
                self._send(channel, {"ask": number})
            else:
                entry = (shim.rank, channel)
                first[shim.host] = min(first.get(shim.host, entry), entry, key=lambda e: e[0])
        for _, channel in first.values():
            self._send(channel, {"ask": number})

    def take_answers(self) -> list[Answer]:
        """Returns the answers since the last call."""
        answers, self._answers = self._answers, []
        return answers

    def tell(self, message: Message) -> None:
        """Sends a message over all lines."""
        for channel, shim in list(self._shims.items()):
            if shim is not None:
                self._send(channel, message)

    def note(self, note: Any) -> None:
        """Forwards a note to the shim of rank 0, whose agent writes the report."""
        for channel, shim in list(self._shims.items()):
            if shim and shim.rank == 0:
                self._send(channel, {"note": note})

    def forget(self, hosts: Collection[str]) -> None:
        """Ends the lines of hosts that have lost their places."""
        for channel, shim in list(self._shims.items()):
            if shim and shim.host in hosts:
                self._end(channel)
        for host in hosts:
            self.hosts.pop(host, None)
            self.hung_up.discard(host)

    def release(self, ranks: Collection[int]) -> list[str]:
        """Ends the lines of ranks that get another host.

        Returns:
            The hosts that have no others.
        """
        for channel, shim in list(self._shims.items()):
            if shim and shim.rank in ranks:
                self._end(channel)
        for there in self.hosts.values():
            there.difference_update(ranks)
        empty = [host for host, there in self.hosts.items() if not there]
        self.forget(empty)
        return empty

    def close(self) -> None:
        """Ends all lines, which ends what is left of the job."""
        self._authenticator.close()
        for channel in list(self._shims):
            self._end(channel)

    def _send(self, channel: Channel, message: Message) -> None:
        try:
            channel.send(message)
        except OSError:  # it has ended, or has not been read for long
            self._end(channel)

    def _add(self, connection: socket.socket) -> None:
        connection.settimeout(_SEND_SECONDS)
        set_timeouts(connection, self._lease)
        channel = Channel(connection)
        self._shims[channel] = None
        self._watches[channel] = self._loop.watch(channel, functools.partial(self._hear, channel))

    def _hear(self, channel: Channel) -> None:
        try:
            messages = channel.receive()
            for message in messages or ():
                self._understand(channel, message)
        except (OSError, ValueError, KeyError, TypeError):  # an error of the network, or of a shim
            self._end(channel)
        else:
            if messages is None:
                self._end(channel, hung_up=True)

    def _end(self, channel: Channel, hung_up: bool = False) -> None:
        if channel not in self._shims:
            return
        self._watches.pop(channel).end()
        shim = self._shims.pop(channel)
        channel.close()
        if shim and not any(h and h.host == shim.host for h in self._shims.values()):
            (self.hung_up.add if hung_up else self.hung_up.discard)(shim.host)

    def _understand(self, channel: Channel, message: Message) -> None:
        if "rank" in message:
            self._hear_status(channel, ShimStatus.of(message))
        elif shim := self._shims.get(channel):
            if "answer" in message:
                answer = Answer(shim.host, int(message["answer"]), message["facts"])
                self._answers.append(answer)
                if self.gate and self.gate.grants(shim):
                    self._send(channel, {"lease": answer.number})
            elif "interrupted" in message:
                self.interrupted.add(shim.rank)
            elif "note" in message:
                self.note(message["note"])

    def _hear_status(self, channel: Channel, shim: ShimStatus) -> None:
        if self.gate is None or self.gate.admits(shim):
            self._note(channel, shim)
        else:
            self._shims[channel] = None
            self._send(channel, {"over": True, "files_stay": False})

    def _note(self, channel: Channel, shim: ShimStatus) -> None:
        # A line broken by the network may still look intact at this end.
        for other, known in list(self._shims.items()):
            if other is not channel and known and known.rank == shim.rank:
                self._end(other)
        self._shims[channel] = shim
        self.hung_up.discard(shim.host)
        self.hosts.setdefault(shim.host, set()).add(shim.rank)
        if shim.exit_code is not None:
            # All report the same code, except that rank 0's agent may add that the report was not
            # written.
            self.exit_code = self.exit_code or shim.exit_code
