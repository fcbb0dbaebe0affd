"""A shim's end of its life-line. It never waits, for the shim has other things to do."""

import contextlib
import errno
import os
import secrets
import socket
import time
from enum import Enum

from hvd_ft.job.lifeline import CONNECT_SECONDS, ShimStatus, check, proof
from hvd_ft.system.channel import Channel, Message
from hvd_ft.system.tcp import set_timeouts

_TRY_AGAIN_SECONDS = 1.0
_KEY_BYTES = 32
_NEVER = float("inf")


class _State(Enum):
    DOWN = 0
    CONNECTING = 1
    GREETING = 2  # connected; the launcher's nonce is to come
    PROVING = 3  # we have shown that we know the key; its proof is to come
    OPEN = 4


class LauncherLine:
    """The line.

    Args:
        address: of the launcher, as it has told it.
        rank: of the shim.
        host: where it is.
        generation: of its agent.
        lease_seconds: after which an unreachable launcher ends the connection.
        known: whether the launcher has been reached there before: then nobody who listens there now
            means that it is dead. Otherwise the address may be wrong.

    Attributes:
        address: as above.
        look_at: when `move` has to be called at the latest, on time.monotonic()'s clock.
        known: whether it has been reached, as above.
        is_dead: whether the launcher is dead: nobody listens any more where it did.
        silent_since: since when it cannot be reached, on the same clock; None: it can.
        problem: why it could not be reached the last time.
    """

    def __init__(
        self,
        address: str,
        rank: int,
        host: str,
        generation: int,
        lease_seconds: float,
        *,
        known: bool,
    ) -> None:
        self.address = address
        self._host, port, self._key = address.rsplit(":", 2)
        self._port = int(port)
        self.place = f"{self._host}:{port}"
        self._lease = lease_seconds
        self.known = known
        self._told = ShimStatus(rank, host, generation, orphaned=False)
        self._state = _State.DOWN
        self._socket: socket.socket | None = None
        self._line: Channel | None = None
        self._nonce = ""
        self.look_at = 0.0
        self.is_dead = False
        self.silent_since: float | None = time.monotonic()
        self.problem: OSError | None = None
        self._connect()

    @property
    def generation(self) -> int:
        """Of the shim's agent."""
        return self._told.generation

    def waits_for(self) -> tuple[list[int], list[int]]:
        """Returns the descriptors that have to be readable, or writable, before `move` helps."""
        if self._socket is None:
            return [], []
        waiting = [self._socket.fileno()]
        return ([], waiting) if self._state is _State.CONNECTING else (waiting, [])

    def tell(
        self, *, orphaned: bool, generation: int | None = None, exit_code: int | None = None
    ) -> None:
        """Tells the launcher how the shim is: now, or when the line is there again.

        Args:
            orphaned: whether its agent is dead.
            generation: of its new agent; None: it has no other.
            exit_code: of the job, if it is over.
        """
        told = self._told
        number = told.generation if generation is None else generation
        self._told = ShimStatus(told.rank, told.host, number, orphaned, exit_code)
        if self._state is _State.OPEN:
            self.send(vars(self._told))

    def send(self, message: Message) -> None:
        """Sends a message, or drops it if there is no line."""
        if self._line is not None and self._state is _State.OPEN:
            try:
                self._line.send(message)
            except OSError as error:
                self._drop(error)

    def close(self) -> None:
        """Ends the line."""
        if self._socket is not None:
            self._socket.close()
        self._socket = self._line = None
        self._state = _State.DOWN

    def move(self, ready: set[int]) -> list[Message]:
        """Goes on: connects, reads, tries again.

        Args:
            ready: descriptors of `waits_for` that are ready.

        Returns:
            What the launcher says.
        """
        now = time.monotonic()
        if self._socket is not None and self._socket.fileno() in ready:
            try:
                return self._go_on()
            except (OSError, ValueError, KeyError, TypeError) as error:
                self._drop(error if isinstance(error, OSError) else OSError(str(error)))
        elif self.look_at <= now:
            if self._state is _State.DOWN:
                self._connect()
            else:
                self._drop(TimeoutError(errno.ETIMEDOUT, "it does not answer"))
        return []

    def _connect(self) -> None:
        self._state = _State.CONNECTING
        self.look_at = time.monotonic() + CONNECT_SECONDS
        try:
            # Once: a name service that cannot be reached would hold us up.
            self._host = socket.gethostbyname(self._host)
            self._socket = socket.socket()
            self._socket.setblocking(False)
            set_timeouts(self._socket, self._lease)
            code = self._socket.connect_ex((self._host, self._port))
            if code not in (0, errno.EINPROGRESS):
                raise OSError(code, os.strerror(code))
        except OSError as error:
            self._drop(error)

    def _drop(self, error: OSError) -> None:
        """Ends what there is of a line, and tries again in a while."""
        self.close()
        now = time.monotonic()
        self.look_at = now + _TRY_AGAIN_SECONDS
        self.problem = error
        if self.silent_since is None:
            self.silent_since = now
            self.look_at = now  # mostly it was the launcher's end, or a moment's trouble
        if self.known and error.errno == errno.ECONNREFUSED:
            self.is_dead = True

    def _go_on(self) -> list[Message]:
        assert self._socket is not None
        if self._state is _State.CONNECTING:
            code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))
            self._socket.settimeout(CONNECT_SECONDS)  # for what is sent
            self._line = Channel(self._socket)
            self._state = _State.GREETING
            return []
        assert self._line is not None
        messages = self._line.receive()
        if messages is None:
            raise ConnectionResetError(errno.ECONNRESET, "the launcher has closed the line")
        orders = []
        for message in messages:
            if self._state is _State.OPEN:
                orders.append(message)
            else:
                self._greet(message)
        return orders

    def _greet(self, message: Message) -> None:
        assert self._line is not None
        if self._state is _State.GREETING:
            self._nonce = secrets.token_hex(_KEY_BYTES)
            answer = proof(self._key, "shim", message["nonce"])
            self._line.send({"nonce": self._nonce, "proof": answer})
            self._state = _State.PROVING
            return
        check(message["proof"], proof(self._key, "launcher", self._nonce))
        self._state = _State.OPEN
        self.known = True
        self.silent_since = self.problem = None
        self.look_at = _NEVER
        with contextlib.suppress(OSError):
            self._line.send(vars(self._told))
