"""Starts shims for agents, apart from them: `python -m hvd_ft.shim.starter NAME`, one per host.

A scheduler may kill everything in the step where agents run as soon as that step ends, sessions of
their own or not (Slurm with proctrack/cgroup). Shims and workers have to outlive agents, so the
launcher has one such process started on each host in a step of its own (launcher/shim_step.py), and
agents have it start their shims instead of forking them.

It listens at an abstract Unix socket, which needs no file and no directory, and then writes a line
to standard output, for the launcher. It ends when its standard input has ended and no shim is left.
It adopts and kills the orphans of a killed shim. Signals with which the scheduler asks for an end
are meant for agents, which also get them: the starter and its shims ignore them.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys

import msgspec

from hvd_ft import native
from hvd_ft.errors import HvdFtError
from hvd_ft.system.event_loop import EventLoop
from hvd_ft.system.handoff import STREAMS, check_peer, receive_order, send_order, take_order
from hvd_ft.system.listener import Listener
from hvd_ft.system.peer_credentials import peer_of
from hvd_ft.system.pidfd import pidfd_of_this_process
from hvd_ft.system.reaper import kill_descendants
from hvd_ft.system.say import say
from hvd_ft.system.signal_pipe import SignalPipe

LISTENS = "listens"  # the first word of that line
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
_ANSWER_SECONDS = 15.0  # for a starter that is killing the descendants of a dead shim


class ShimWanted(msgspec.Struct):
    """An agent's order, with its standard streams and its pidfd.

    Attributes:
        environment: of the shim, all of it.
        directory: where it is to run.
    """

    environment: dict[str, str]
    directory: str


class ShimStarted(msgspec.Struct):
    """The answer, with the pidfd of the shim.

    Attributes:
        pid: of the shim.
    """

    pid: int


def address(name: str) -> str:
    """Returns the abstract address of a starter."""
    return f"\0{name}"


def start_shim(name: str) -> tuple[int, int, socket.socket]:
    """Has the starter of this host start a shim for this process.

    Args:
        name: of the starter's socket.

    Returns: The shim's process id, its pidfd, and the end of the channel to it.

    Raises:
        HvdFtError: there is no starter, or it does not answer.
    """
    end = socket.socket(socket.AF_UNIX)
    end.settimeout(_ANSWER_SECONDS)
    try:
        end.connect(address(name))
        check_peer(end)
        order = ShimWanted(dict(os.environ), os.getcwd())
        with pidfd_of_this_process() as own:
            send_order(end, msgspec.to_builtins(order), [0, 1, 2, own])
        started, (pidfd,) = receive_order(end, ShimStarted, 1)
    except OSError as error:
        end.close()
        raise HvdFtError(
            f"the starter of shims on {socket.gethostname()} does not answer ({error!r}): see "
            "whether its step of the job has ended"
        ) from error
    end.settimeout(None)
    return started.pid, pidfd, end


class Starter:
    """The starter's process.

    Args:
        name: of its socket.

    Raises:
        OSError: there is such a socket already.
    """

    def __init__(self, name: str) -> None:
        self._loop = EventLoop()
        self._shims: dict[int, subprocess.Popen[bytes]] = {}
        self._launcher_lives = True
        self._signals = SignalPipe([signal.SIGCHLD])
        self._loop.watch(self._signals, self._on_signals)
        self._stdin = self._loop.watch(0, self._on_stdin)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(address(name))
        listener.listen(socket.SOMAXCONN)
        self._listener = Listener(self._loop, listener, self._start)

    def run(self) -> None:
        """Starts shims until the launcher has ended and no shim is left."""
        with contextlib.suppress(OSError):  # the launcher has ended
            os.write(1, f"{LISTENS} {socket.gethostname()}\n".encode())
        self._loop.run(until=lambda: not self._launcher_lives and not self._shims)

    def _on_stdin(self) -> None:
        if not os.read(0, 4096):
            self._stdin.end()
            self._launcher_lives = False

    def _on_signals(self) -> None:
        self._signals.take()
        self._reap()

    def _reap(self) -> None:
        """Reaps all dead children; kills what a dead shim has left behind."""
        if self._reap_all() and (
            unkillable := kill_descendants(self._reap_all, spared=set(self._shims))
        ):
            say(f"processes {unkillable} do not die of SIGKILL: look for them with ps")

    def _reap_all(self) -> bool:
        """Returns whether there was a shim among them."""
        one = False
        with contextlib.suppress(ChildProcessError):
            while (reaped := os.waitpid(-1, os.WNOHANG))[0] != 0:
                pid, status = reaped
                if shim := self._shims.pop(pid, None):
                    # Popen must not wait for a process that is already reaped.
                    shim.returncode = os.waitstatus_to_exitcode(status)
                    one = True
        return one

    def _start(self, connection: socket.socket, _address: object) -> None:
        if (taken := take_order(connection, ShimWanted, STREAMS + 1)) is None:
            return
        order, descriptors = taken
        passed = [connection.fileno(), descriptors[STREAMS]]
        arguments = [*map(str, passed), str(peer_of(connection).pid)]
        try:
            shim = subprocess.Popen(
                [sys.executable, "-m", "hvd_ft.shim.shim", *arguments],
                env=order.environment,
                cwd=order.directory,
                stdin=descriptors[0],
                stdout=descriptors[1],
                stderr=descriptors[2],
                pass_fds=passed,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            say(f"no shim can be started: {error}")
        else:
            self._shims[shim.pid] = shim
            self._answer(connection, shim.pid)
        finally:
            connection.close()
            for descriptor in descriptors:
                os.close(descriptor)

    def _answer(self, connection: socket.socket, pid: int) -> None:
        pidfd = os.pidfd_open(pid)  # our child, not reaped yet
        try:
            send_order(connection, msgspec.to_builtins(ShimStarted(pid)), [pidfd])
        except OSError:  # the agent has died; its shim will notice
            pass
        finally:
            os.close(pidfd)


def main() -> None:
    """Runs the starter named by the first argument."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    native.become_subreaper()
    Starter(sys.argv[1]).run()


if __name__ == "__main__":
    main()
