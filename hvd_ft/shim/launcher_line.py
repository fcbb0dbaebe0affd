"""A shim's end of its life-line. It never blocks, as the shim has other things to do."""

import contextlib
import errno
import os
import secrets
import socket
from collections.abc import Callable
from enum import Enum

import msgspec

from hvd_ft.job import proof
from hvd_ft.job.lifeline_messages import (
    FromLauncher,
    FromShim,
    ShimStatus,
    parse_from_launcher,
    to_wire,
)
from hvd_ft.system.channel import Channel
from hvd_ft.system.event_loop import EventLoop, Watch
from hvd_ft.system.tcp import set_timeouts
from hvd_ft.system.wire import OneFrame, pack

_CONNECT_SECONDS = 2.0  # for a connection, and the proofs
_TRY_AGAIN_SECONDS = 1.0
_SEND_SECONDS = 0.8  # less than the margin of an act lease: the shim has to stop processes in time
_KEY_BYTES = 32


class _State(Enum):
    DOWN = 0
    CONNECTING = 1
    GREETING = 2  # connected, awaiting the launcher's nonce
    PROVING = 3  # our proof is sent, awaiting the launcher's
    OPEN = 4


class LauncherLine:
    """The line.

    Args:
        loop: keeps it going.
        address: of the launcher, as given by it.
        shim: its status for the launcher.
        lease_seconds: after which an unreachable launcher ends the connection.
        known: whether the launcher has been reached there before: then a refused connection means
            that it is dead. Otherwise the address may be wrong.
        silence_seconds: how long the launcher may be out of reach.
        on_order: called with each message of the launcher. on_dead: called when the launcher is
            dead: its address refuses connections. on_lost: called when it was out of reach for too
            long.

    Attributes:
        address: as above.
        known: whether it has been reached, as above.
        silent_since: since when it cannot be reached, on the loop's clock; None if it can.
        problem: why the last attempt to reach it failed.
    """

    def __init__(
        self,
        loop: EventLoop,
        address: str,
        shim: ShimStatus,
        lease_seconds: float,
        *,
        known: bool,
        silence_seconds: float,
        on_order: Callable[[FromLauncher], None],
        on_dead: Callable[[], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._loop = loop
        self.address = address
        self._host, port, self._key = address.rsplit(":", 2)
        self._port = int(port)
        self.place = f"{self._host}:{port}"
        self._lease = lease_seconds
        self.known = known
        self._silence = silence_seconds
        self._on_order = on_order
        self._on_dead = on_dead
        self._told = shim
        self._state = _State.DOWN
        self._socket: socket.socket | None = None
        self._line: Channel | None = None  # once the launcher has proved that it is one
        self._frame = OneFrame(proof.MOST_BYTES)  # of what it says before
        self._watch: Watch | None = None  # of the socket
        self._nonce = ""
        self._again = loop.timer(self._on_time)
        self._lost = loop.timer(on_lost)
        self.silent_since: float | None = None
        self.problem: OSError | None = None
        self._begin_silence()
        self._connect()

    @property
    def generation(self) -> int:
        """The generation of the shim's agent."""
        return self._told.generation

    @property
    def has_code(self) -> bool:
        """Whether the launcher is told the job's exit code: the job is over."""
        return self._told.exit_code is not None

    @property
    def is_lost(self) -> bool:
        """Whether it has been out of reach for too long."""
        since = self.silent_since
        return self.known and since is not None and self._loop.now() >= since + self._silence

    def tell(
        self,
        *,
        orphaned: bool,
        generation: int | None = None,
        exit_code: int | None = None,
        lack: str = "",
    ) -> None:
        """Sends the shim's status to the launcher: now, or when the line is up again.

        Args:
            orphaned: whether its agent is dead.
            generation: of its new agent; None: unchanged.
            exit_code: of the job, if it is over.
            lack: as in `ShimStatus`.
        """
        number = self._told.generation if generation is None else generation
        self._told = msgspec.structs.replace(
            self._told, generation=number, orphaned=orphaned, exit_code=exit_code, lack=lack
        )
        if self._state is _State.OPEN:
            self.send(self._told)

    def send(self, message: FromShim) -> None:
        """Sends a message; drops it if the line is down."""
        if self._line is not None and self._state is _State.OPEN:
            try:
                self._line.send(to_wire(message))
            except OSError as error:
                self._drop(error)

    def close(self) -> None:
        """Ends the line; the launcher hears so even if it has just sent something."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
        self._hang_up()
        self._again.clear()
        self._lost.clear()

    def _hang_up(self) -> None:
        if self._watch is not None:
            self._watch.end()
        if self._socket is not None:
            self._socket.close()
        self._watch = self._socket = self._line = None
        self._state = _State.DOWN

    def _begin_silence(self) -> None:
        now = self.silent_since = self._loop.now()
        if self.known:
            self._lost.set(now + self._silence)

    def _on_ready(self) -> None:
        try:
            orders = self._go_on()
        except (OSError, ValueError) as error:
            self._drop(error if isinstance(error, OSError) else OSError(str(error)))
            return
        for order in orders:
            self._on_order(order)

    def _on_time(self) -> None:
        if self._state is _State.DOWN:
            self._connect()
        else:
            self._drop(TimeoutError(errno.ETIMEDOUT, "it does not answer"))

    def _connect(self) -> None:
        self._state = _State.CONNECTING
        self._again.set(self._loop.now() + _CONNECT_SECONDS)
        try:
            # Only once: an unreachable name service would block the shim.
            self._host = socket.gethostbyname(self._host)
            self._socket = socket.socket()
            self._socket.setblocking(False)
            set_timeouts(self._socket, self._lease)
            code = self._socket.connect_ex((self._host, self._port))
            if code not in (0, errno.EINPROGRESS):
                raise OSError(code, os.strerror(code))
            self._watch = self._loop.watch(self._socket, on_writable=self._on_ready)
        except OSError as error:
            self._drop(error)

    def _drop(self, error: OSError) -> None:
        """Ends the line, if any, and schedules another attempt."""
        self._hang_up()
        self.problem = error
        if self.silent_since is None:
            self._begin_silence()
            self._again.set(self._loop.now())  # usually the launcher's end, or a passing problem
        else:
            self._again.set(self._loop.now() + _TRY_AGAIN_SECONDS)
        if self.known and error.errno == errno.ECONNREFUSED:
            self._on_dead()

    def _go_on(self) -> list[FromLauncher]:
        """Takes the next step of the connection; returns the launcher's messages."""
        assert self._socket is not None
        assert self._watch is not None
        if self._state is _State.CONNECTING:
            code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))
            self._socket.settimeout(_SEND_SECONDS)
            self._frame = OneFrame(proof.MOST_BYTES)
            self._state = _State.GREETING
            self._watch.set(on_readable=self._on_ready)
            return []
        if self._line is None:
            self._greet(self._socket)
            return []
        messages = self._line.receive()
        if messages is None:
            raise ConnectionResetError(errno.ECONNRESET, "the launcher has closed the line")
        return list(map(parse_from_launcher, messages))

    def _greet(self, end: socket.socket) -> None:
        """Reads what the launcher says before both have proved that they know the key."""
        data = end.recv(self._frame.wants)
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, "the launcher has closed the line")
        body = self._frame.add(data)
        if body is None:
            return
        if self._state is _State.GREETING:
            self._nonce = secrets.token_hex(_KEY_BYTES)
            end.sendall(pack(proof.claim(self._key, body, self._nonce)))
            self._frame = OneFrame(proof.MOST_BYTES)
            self._state = _State.PROVING
            return
        proof.check_confirmation(self._key, body, self._nonce)
        self._line = Channel(end)
        self._state = _State.OPEN
        self.known = True
        self.silent_since = self.problem = None
        self._again.clear()
        self._lost.clear()
        with contextlib.suppress(OSError):
            self._line.send(to_wire(self._told))
