"""Runs a command on a node from outside: through a Unix socket, as through ssh.

The node's init starts the command, with the caller's standard streams, and answers with its exit
code. So a node's processes are never children of another node's, as on a real cluster.
"""

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

import msgspec

from hvd_ft.errors import HvdFtError
from hvd_ft.system.handoff import send_order
from hvd_ft.system.peer_credentials import peer_of
from hvd_ft.system.wire import unpack_as

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_TIMEOUT_SECONDS = 5.0  # limit for a node's init to accept a command, which it does at once


class ExecOrder(msgspec.Struct):
    """An order to a node's init: the command to run with the caller's streams.

    Attributes:
        command: program and arguments.
        environment: the whole environment.
        directory: where it runs.
        hang_up: whether the command gets SIGHUP when the caller has ended.
    """

    command: list[str]
    environment: dict[str, str]
    directory: str
    hang_up: bool


class ExecEnded(msgspec.Struct):
    """The answer.

    Attributes:
        code: the command's exit code.
        error: why the command could not be started; None if it was.
    """

    code: int = 0
    error: str | None = None


class Closed(HvdFtError):
    """There is no exec server."""


def enter(
    server: Path,
    command: Sequence[str],
    environment: Mapping[str, str],
    directory: str,
    forward: bool = True,
) -> int:
    """Runs a command on a node and waits for its end, as long as that takes.

    Args:
        server: The node's socket.
        command: Program and arguments.
        environment: The command's whole environment.
        directory: Where it runs.
        forward: Whether signals that ask this process to end are forwarded to the command, and the
            command gets SIGHUP if this process is killed. Otherwise, as with ssh, it goes on.

    Returns:
        The exit code of the command; 128 + the signal's number if a signal killed it.

    Raises:
        Closed: The node is dead.
        HvdFtError: The node cannot start the command, or died meanwhile.
    """
    order = msgspec.to_builtins(ExecOrder([*command], {**environment}, directory, forward))
    with _connected(server) as end:
        try:
            with _forwarding(end, lambda: send_order(end, order, (0, 1, 2)), forward):
                end.settimeout(None)
                answer = b"".join(iter(lambda: end.recv(4096), b""))
        except OSError as error:
            raise Closed(
                f"node {server.name} does not answer ({error.strerror or error}); "
                "restart the cluster"
            ) from None
    if not answer:
        raise HvdFtError(f"node {server.name} died while {command[0]} ran; restart the cluster")
    try:
        ended = unpack_as(answer, ExecEnded)
    except ValueError:  # cut short
        raise HvdFtError(f"node {server.name} died when {command[0]} ended; restart it") from None
    if ended.error is not None:
        raise HvdFtError(f"{command[0]} cannot be run on {server.name}: {ended.error}")
    return ended.code


def process_behind(server: Path) -> int | None:
    """Returns the process id of an exec server; 0 if it is not visible from here.

    Returns:
        None if there is no exec server.
    """
    try:
        with _connected(server) as end:
            return peer_of(end).pid
    except Closed:
        return None


@contextlib.contextmanager
def pidfd_behind(server: Path) -> Iterator[int | None]:
    """Yields a pidfd of the exec server's process; None if there is none, or it is not visible."""
    pid = process_behind(server)
    try:
        pidfd = os.pidfd_open(pid) if pid else None
    except ProcessLookupError:
        pidfd = None
    if pidfd is None:
        yield None
        return
    try:
        # It still listens: so it was alive when the number was looked up.
        yield pidfd if process_behind(server) == pid else None
    finally:
        os.close(pidfd)


@contextlib.contextmanager
def _connected(server: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as end:
        end.settimeout(_TIMEOUT_SECONDS)
        try:
            end.connect(os.fspath(server))
        except OSError as error:
            raise Closed(
                f"node {server.name} is dead ({error.strerror or error}); restart the cluster"
            ) from None
        yield end


@contextlib.contextmanager
def _forwarding(end: socket.socket, begin: Callable[[], None], forward: bool) -> Iterator[None]:
    """Calls `begin`, then forwards the signals that this process receives."""

    def send(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(OSError):
            end.send(bytes([number]))

    # A signal that is ignored, as by nohup, stays ignored.
    ours = FORWARDED if forward else ()
    heeded = [number for number in ours if signal.getsignal(number) != signal.SIG_IGN]
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, heeded)
    before = {number: signal.signal(number, send) for number in heeded}
    try:
        begin()
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for number, handler in before.items():
            signal.signal(number, handler)
