"""A shim's end of its life-line. It never blocks, as the shim has other things to do."""

import contextlib
import errno
import socket
from collections.abc import Callable

import msgspec

from hvd_ft.job.lifeline_messages import FromLauncher, FromShim, ShimStatus
from hvd_ft.shim.launcher_connection import LauncherConnection
from hvd_ft.system.event_loop import EventLoop

_CONNECT_SECONDS = 2.0  # for a connection, and the proofs
_TRY_AGAIN_SECONDS = 1.0


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
        self._connection: LauncherConnection | None = None  # None: the line is down
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
        self.send(self._told)

    def send(self, message: FromShim) -> None:
        """Sends a message; drops it if the line is down."""
        if self._connection is not None and self._connection.is_open:
            try:
                self._connection.send(message)
            except OSError as error:
                self._drop(error)

    def close(self) -> None:
        """Ends the line; the launcher hears so even if it has just sent something."""
        if self._connection is not None:
            self._connection.finish()
        self._hang_up()
        self._again.clear()
        self._lost.clear()

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _begin_silence(self) -> None:
        now = self.silent_since = self._loop.now()
        if self.known:
            self._lost.set(now + self._silence)

    def _on_time(self) -> None:
        if self._connection is None:
            self._connect()
        else:
            self._drop(TimeoutError(errno.ETIMEDOUT, "it does not answer"))

    def _connect(self) -> None:
        self._again.set(self._loop.now() + _CONNECT_SECONDS)
        self._connection = LauncherConnection(
            self._loop,
            self._key,
            on_open=self._on_open,
            on_order=self._on_order,
            on_failed=self._drop,
        )
        try:
            # Only once: an unreachable name service would block the shim.
            self._host = socket.gethostbyname(self._host)
            self._connection.begin(self._host, self._port, self._lease)
        except OSError as error:
            self._drop(error)

    def _on_open(self) -> None:
        assert self._connection is not None
        self.known = True
        self.silent_since = self.problem = None
        self._again.clear()
        self._lost.clear()
        with contextlib.suppress(OSError):
            self._connection.send(self._told)

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
