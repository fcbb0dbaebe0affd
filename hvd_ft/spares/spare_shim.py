"""The shim of one warm spare: its parent, which hands it over and reaps its orphans.

It waits at a Unix socket in the job's directory. A shim that has to restart a worker connects there
and sends the worker's order with its standard streams. From then on the spare's shim acts as the
worker's: it reports over the connection how the worker starts and ends, forwards signals, and ends
everything when the connection ends. The socket's name tells whether the spare is ready; a spare
that is still importing can be taken too, as a new process would have to import everything from the
beginning.

messages.py defines its messages. To the spare manager it sends: ready   taken

Until it is taken, it ends with the manager. Then it belongs to the worker, and has its own process
group, by which the manager's shim recognises it (children.py): the manager may die.
"""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence

import msgspec

from hvd_ft import native
from hvd_ft.spares.handover import PREPARING, READY
from hvd_ft.spares.messages import Go, Kill, SpareEnded, SpareOrder, SpareStarted, parse_command
from hvd_ft.spares.pool_policy import fits
from hvd_ft.system.channel import Channel, Message
from hvd_ft.system.child import begin_child
from hvd_ft.system.event_loop import EventLoop
from hvd_ft.system.handoff import send_order, take_order
from hvd_ft.system.listener import Listener
from hvd_ft.system.reaper import kill_descendants
from hvd_ft.system.say import say
from hvd_ft.system.signal_pipe import SignalPipe

EXIT_FAILED = 1


def fork_spare_shim(
    argv: Sequence[str], env: Mapping[str, str], number: int
) -> tuple[int, Channel]:
    """Forks a shim; its socket is created in its working directory, which is the job's.

    Args:
        argv: starts the spare, but for the descriptor of its socket.
        env: of the spare.
        number: of the spare in its job.

    Returns: The shim's process id, and its stream of reports.
    """
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid:
        theirs.close()
        return pid, Channel(ours)
    code = EXIT_FAILED
    try:
        native.become_subreaper()
        ours.close()
        code = _SpareShim(Channel(theirs), dict(env), number).run(argv)
    except Exception as error:
        say(f"the shim of a spare failed: {error!r}")
    os._exit(code)


class _SpareShim:
    def __init__(self, manager: Channel, env: dict[str, str], number: int) -> None:
        self._manager = manager
        self._env = env
        self._number = number
        self._taker: Channel | None = None  # the connection of the shim that has taken the spare
        self._over = False
        self._status: int | None = None  # of the spare, as from wait(2)
        self._ended_ns = 0
        self._deaths = SignalPipe([signal.SIGCHLD])

    def run(self, argv: Sequence[str]) -> int:
        """Starts the spare and serves it to its end; returns the shim's exit code."""
        ours, theirs = socket.socketpair()
        spare = subprocess.Popen(
            [*argv[:3], str(theirs.fileno()), *argv[3:]],
            env=self._env,
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            preexec_fn=begin_child,  # noqa: PLW1509  (the shim has one thread)
        )
        theirs.close()
        self._pid = spare.pid
        self._pidfd = os.pidfd_open(spare.pid)
        self._spare = ours
        try:
            with EventLoop() as loop:
                loop.watch(self._deaths, self._on_deaths)
                self._wait_for_taker(loop)
                if self._taker is not None:
                    self._tell(self._manager, {"report": "taken"})
                    self._serve(loop, self._taker)
        finally:
            kill_descendants(self._reap)
            assert self._status is not None
            spare.returncode = os.waitstatus_to_exitcode(self._status)  # Popen must not wait
        if self._taker is None:
            return spare.returncode if spare.returncode > 0 else EXIT_FAILED
        self._tell(self._taker, msgspec.to_builtins(SpareEnded(self._status, self._ended_ns)))
        return 0

    # -------------------------------------------------------------- before it is taken

    def _wait_for_taker(self, loop: EventLoop) -> None:
        """Runs until a shim has taken the spare, or until the spare or its manager is dead."""
        listener = socket.socket(socket.AF_UNIX)
        name = f"{PREPARING}{self._number}"

        def on_ready() -> None:
            nonlocal name
            ready.end()
            if self._spare.recv(4096):
                os.rename(name, name := f"{READY}{self._number}")
                self._tell(self._manager, {"report": "ready"})

        # The socket is visible only while it is listening and not taken.
        listener.bind(f"new-{self._number}")
        os.chmod(f"new-{self._number}", 0o600)
        listener.listen()
        os.rename(f"new-{self._number}", name)
        accepting = Listener(loop, listener, self._hand_over)
        watches = [
            loop.watch(self._manager, self._end),
            ready := loop.watch(self._spare, on_ready),
        ]
        try:
            loop.run(until=lambda: self._over or self._taker is not None)
        finally:
            os.unlink(name)
            accepting.close()
            for watch in watches:
                watch.end()

    def _hand_over(self, connection: socket.socket, _address: object) -> None:
        if (taken := take_order(connection, SpareOrder)) is None:  # it may have died meanwhile
            return
        order, streams = taken
        if self._taker is not None or not fits(self._env, order.env):
            connection.close()  # it will start a process of its own
            for stream in streams:
                os.close(stream)
            return
        os.setpgid(0, 0)
        started = SpareStarted(self._pid, time.monotonic_ns())
        with contextlib.suppress(OSError):  # it has gone; its channel's end tells that too
            send_order(connection, msgspec.to_builtins(started), [self._pidfd])
        self._order, self._streams = order, streams
        self._taker = Channel(connection)

    # -------------------------------------------------------------- afterwards

    def _serve(self, loop: EventLoop, taker: Channel) -> None:
        """Forwards signals until the worker is dead or the shim that took it is gone."""

        def on_orders() -> None:
            messages = taker.receive()
            for message in messages or ():
                self._follow(parse_command(message))
            if messages is None:
                self._end()

        loop.watch(taker, on_orders)
        loop.run(until=lambda: self._over)

    def _follow(self, command: Go | Kill) -> None:
        if isinstance(command, Go):
            with contextlib.suppress(OSError):  # a spare that has just died
                send_order(self._spare, msgspec.to_builtins(self._order), self._streams)
            for stream in self._streams:
                os.close(stream)
        elif self._status is None:  # the number is the group's until it is reaped
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, command.signal)

    def _end(self) -> None:
        self._over = True

    def _on_deaths(self) -> None:
        self._deaths.take()
        self._reap()
        if self._status is not None:
            self._over = True

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (reaped := os.waitpid(-1, os.WNOHANG))[0] != 0:
                if reaped[0] == self._pid:
                    self._status, self._ended_ns = reaped[1], time.monotonic_ns()

    def _tell(self, whom: Channel, message: Message) -> None:
        with contextlib.suppress(OSError):  # the other end is gone
            whom.send(message)
