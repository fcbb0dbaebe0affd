"""Life-lines: the connections that nurseries, on all nodes, have to the launcher of their job.

Over its line a nursery says whether it has an agent. When an agent has died the launcher so knows
that workers wait for new agents; when the launcher has died all nurseries see the end of their
lines, and that nobody listens any more, and end the job.

Both sides show that they know the key that the launcher has made up for its job. They say:

launcher: (nonce)           nursery: (nonce, proof)
launcher: (proof)           nursery: (rank, generation, orphaned, exit_code), whenever it
                                changes
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import selectors
import socket
from dataclasses import dataclass

from hvd_ft.channel import Channel, Message

CONNECT_SECONDS = 2.0  # for a connection, and for each message of its beginning
_MAXIMUM_STRANGERS = 64  # connections that have not shown that they know the key
_KEY_BYTES = 32


@dataclass(frozen=True)
class Holder:
    """What the nursery at the other end of a line has said last.

    Attributes:
        rank: whose nursery it is.
        generation: of its agent.
        orphaned: whether that agent is dead.
        exit_code: of the job, once it is over.
    """

    rank: int
    generation: int
    orphaned: bool
    exit_code: int | None = None


class LifeLines:
    """The launcher's ends.

    Args:
        one_host: whether all ranks are on this host; else nurseries on other hosts connect, to this
            host's name.

    Attributes:
        address: what a nursery has to be told: host, port and key.
        exit_code: of the job, once a nursery has told it.
    """

    def __init__(self, one_host: bool) -> None:
        self._key = secrets.token_hex(_KEY_BYTES)
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("127.0.0.1" if one_host else "", 0), backlog=256)
        self._listener.settimeout(CONNECT_SECONDS)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._nonces: dict[Channel, str] = {}  # of strangers
        self._holders: dict[Channel, Holder | None] = {}
        self.exit_code: int | None = None
        host = "127.0.0.1" if one_host else socket.gethostname()
        self.address = f"{host}:{self._listener.getsockname()[1]}:{self._key}"

    def fileno(self) -> int:
        """Returns the descriptor to wait on: readable when `serve` has something to do."""
        return self._selector.fileno()

    @property
    def holders(self) -> list[Holder | None]:
        """What the nurseries said last that have a line; None for one that has said nothing yet."""
        return list(self._holders.values())

    def serve(self) -> None:
        """Hears what has been said, and answers those who connect; does not wait."""
        for key, _ in self._selector.select(0):
            if key.fileobj is self._listener:
                self._accept()
            else:
                self._hear(key.data)

    def close(self) -> None:
        """Ends all lines, and with them what still runs of the job."""
        self._listener.close()
        for channel in [*self._nonces, *self._holders]:
            channel.close()
        self._selector.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            connection.settimeout(CONNECT_SECONDS)
            channel = Channel(connection)
            if len(self._nonces) >= _MAXIMUM_STRANGERS:
                channel.close()
                return
            self._nonces[channel] = secrets.token_hex(_KEY_BYTES)
            self._selector.register(channel, selectors.EVENT_READ, channel)
            channel.send({"nonce": self._nonces[channel]})

    def _hear(self, channel: Channel) -> None:
        try:
            messages = channel.receive()
            for message in messages or ():
                self._understand(channel, message)
        except (OSError, ValueError, KeyError, TypeError):
            messages = None
        if messages is None:
            self._selector.unregister(channel)
            self._nonces.pop(channel, None)
            self._holders.pop(channel, None)
            channel.close()

    def _understand(self, channel: Channel, message: Message) -> None:
        if channel in self._holders:
            code = message["exit_code"]
            self._holders[channel] = Holder(
                int(message["rank"]),
                int(message["generation"]),
                bool(message["orphaned"]),
                None if code is None else int(code),
            )
            if code is not None:
                self.exit_code = int(code)
            return
        _check(message["proof"], _proof(self._key, "nursery", self._nonces[channel]))
        channel.send({"proof": _proof(self._key, "launcher", message["nonce"])})
        del self._nonces[channel]
        self._holders[channel] = None


def hold(address: str) -> Channel:
    """Connects to the launcher.

    Args:
        address: as the launcher has told it.

    Returns:
        The line, over which a nursery says how it is.

    Raises:
        ConnectionRefusedError: nobody listens there: the launcher is dead.
        OSError: it cannot be reached.
    """
    host, port, key = address.rsplit(":", 2)
    connection = socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS)
    line = Channel(connection)
    try:
        nonce = secrets.token_hex(_KEY_BYTES)
        theirs = _receive_one(line)["nonce"]
        line.send({"nonce": nonce, "proof": _proof(key, "nursery", theirs)})
        _check(_receive_one(line)["proof"], _proof(key, "launcher", nonce))
    except (ValueError, KeyError, TypeError) as error:
        line.close()
        raise ConnectionError("it does not speak as a launcher does") from error
    except OSError:
        line.close()
        raise
    return line


def say(line: Channel, holder: Holder) -> None:
    """Says over a line how its nursery is; of a line that has ended its holder learns elsewhere."""
    with contextlib.suppress(OSError):
        line.send(vars(holder))


def _receive_one(line: Channel) -> Message:
    while not (messages := line.receive()):
        if messages is None:
            raise ConnectionResetError("the launcher has closed the line")
    return messages[0]


def _proof(key: str, who: str, nonce: str) -> str:
    return hmac.digest(key.encode(), f"{who} {nonce}".encode(), "sha256").hex()


def _check(proof: str, expected: str) -> None:
    if not hmac.compare_digest(proof, expected):
        raise ValueError("this is not the job's key")
