"""A node's init: process 1 of the node's namespaces, which all end with this process.

The switch starts it under `unshare`. It makes the node look like a host, prints one line when that
is done, and then starts the commands that its exec server receives, as long as its stdin is open.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hvd_ft.errors import HvdFtError
from hvd_ft.system.child import default_signals
from hvd_ft.system.event_loop import EventLoop, Watch
from hvd_ft.system.handoff import take_order
from hvd_ft.system.listener import Listener
from hvd_ft.system.say import answer
from hvd_ft.system.signal_pipe import SignalPipe
from hvd_ft.tools.cluster.cluster_dir import ClusterDir
from hvd_ft.tools.cluster.exec_server import FORWARDED, ExecEnded, ExecOrder
from hvd_ft.tools.cluster.tools import run

READY = "ready"
# /sys shows the network of the process that mounts it. Control groups are found below it.
_MOUNTS = """
mount --rbind /sys/fs/cgroup "$1/cgroup"
mount -t sysfs sysfs /sys
mount --move "$1/cgroup" /sys/fs/cgroup
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount --bind "$1/hosts" /etc/hosts
if [ -e /etc/hostname ]; then
    hostname >"$1/$2.hostname"
    mount --bind "$1/$2.hostname" /etc/hostname
fi
ip link set lo up
"""


def main() -> None:
    """Runs the node `argv[2]` of the cluster `argv[1]`."""
    default_signals()  # for process 1 this means that a signal from its own node cannot end it
    home, node = ClusterDir(sys.argv[1]), sys.argv[2]
    try:
        _become_host(home, node)
        listener = listen(home.exec_socket(node))
    except (HvdFtError, OSError) as error:
        answer(f"node {node}: {error}")
        sys.exit(1)
    answer(READY)
    os.dup2(2, 1)
    _Init(listener).serve()


def listen(server: Path) -> socket.socket:
    """Opens an exec server's socket."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(os.fspath(server))
    listener.listen(socket.SOMAXCONN)
    return listener


def _become_host(home: ClusterDir, node: str) -> None:
    socket.sethostname(node)
    run("sh", "-ec", _MOUNTS, "sh", os.fspath(home.path), node)
    # The machine may use bbr, which paces and probes: a test would measure bbr's rate, not the
    # link's.
    for control in ("cubic", "reno"):
        with contextlib.suppress(OSError):
            Path("/proc/sys/net/ipv4/tcp_congestion_control").write_text(control)
            break


@dataclass
class _Command:
    caller: socket.socket
    watch: Watch
    hang_up: bool


class _Init:
    """Starts commands, reports their ends, and reaps every orphan of the node."""

    def __init__(self, listener: socket.socket) -> None:
        self._commands: dict[int, _Command] = {}  # those with a caller, by process id
        self._loop = EventLoop()
        self._loop.watch(0, lambda: sys.exit(0))
        Listener(self._loop, listener, self._start)
        signals = SignalPipe([signal.SIGCHLD])
        self._loop.watch(signals, lambda: self._reap(signals))

    def serve(self) -> None:
        """Runs until the switch has died."""
        self._loop.run(until=lambda: False)

    def _start(self, caller: socket.socket, _address: object) -> None:
        taken = take_order(caller, ExecOrder)
        if taken is None:  # a probe that only checked whether this node is up
            return
        order, streams = taken
        try:
            process = subprocess.Popen(
                order.command,
                env=order.environment,
                cwd=order.directory,
                stdin=streams[0],
                stdout=streams[1],
                stderr=streams[2],
                start_new_session=True,
            )
        except (OSError, ValueError, IndexError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            self._answer(caller, ExecEnded(error=reason))
        else:
            process.returncode = 0  # _reap() waits for it
            pid = process.pid
            watch = self._loop.watch(caller, lambda: self._hear(pid))
            self._commands[pid] = _Command(caller, watch, order.hang_up)
        finally:
            for stream in streams:
                os.close(stream)

    def _hear(self, pid: int) -> None:
        """Forwards the signals that the caller received, or notices that it has died."""
        command = self._commands[pid]
        try:
            numbers = command.caller.recv(64)
        except OSError:
            numbers = b""
        if not numbers:
            self._forget(pid).close()
            numbers = bytes([signal.SIGHUP] * command.hang_up)
        for number in numbers:
            if number in FORWARDED:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, number)

    def _forget(self, pid: int) -> socket.socket:
        command = self._commands.pop(pid)
        command.watch.end()
        return command.caller

    def _reap(self, signals: SignalPipe) -> None:
        signals.take()
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] in self._commands:
                    code = os.waitstatus_to_exitcode(ended[1])
                    code = code if code >= 0 else 128 - code
                    self._answer(self._forget(ended[0]), ExecEnded(code))

    @staticmethod
    def _answer(caller: socket.socket, answer: ExecEnded) -> None:
        with caller, contextlib.suppress(OSError):
            caller.sendall(msgspec.json.encode(answer))


if __name__ == "__main__":
    main()
