"""A node's init process: process 1 of its own namespaces, which all end with it.

The switch starts it under `unshare`. It makes the node look like a host, prints one line when that
is done, and then starts the commands that its exec server receives, as long as its stdin is open.
"""

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from pathlib import Path

from hvd_ft.cluster.cluster_dir import ClusterDir
from hvd_ft.cluster.exec_server import FORWARDED
from hvd_ft.cluster.tools import run
from hvd_ft.errors import HvdFtError
from hvd_ft.system.child import default_signals
from hvd_ft.system.handoff import receive_order
from hvd_ft.system.say import answer

READY = "ready"
_ORDER_TIMEOUT_SECONDS = 2.0
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


class _Init:
    """Starts commands, reports their ends, and reaps every orphan of the node."""

    def __init__(self, listener: socket.socket) -> None:
        self._callers: dict[int, socket.socket] = {}  # by the command's process id
        self._selector = selectors.DefaultSelector()
        self._selector.register(0, selectors.EVENT_READ, lambda: sys.exit(0))
        self._selector.register(listener, selectors.EVENT_READ, lambda: self._accept(listener))
        woken, wake = socket.socketpair()
        for end in (woken, wake):
            end.setblocking(False)
        self._wake = wake  # stays open
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        self._selector.register(woken, selectors.EVENT_READ, lambda: self._reap(woken))

    def serve(self) -> None:
        """Runs until the switch has died."""
        while True:
            for key, _ in self._selector.select():
                key.data()

    def _accept(self, listener: socket.socket) -> None:
        caller, _ = listener.accept()
        caller.settimeout(_ORDER_TIMEOUT_SECONDS)
        try:
            order, streams = receive_order(caller)
        except OSError:  # a probe that only checked whether this node is up
            caller.close()
            return
        try:
            process = subprocess.Popen(
                order["command"],
                env=order["environment"],
                cwd=order["directory"],
                stdin=streams[0],
                stdout=streams[1],
                stderr=streams[2],
                start_new_session=True,
            )
            process.returncode = 0  # _reap() waits for it
            self._callers[process.pid] = caller
            pid, hang_up = process.pid, order["hang_up"]
            self._selector.register(
                caller, selectors.EVENT_READ, lambda: self._listen_to(caller, pid, hang_up)
            )
        except OSError as error:
            self._answer(caller, {"error": error.strerror or str(error)})
        finally:
            for stream in streams:
                os.close(stream)

    def _listen_to(self, caller: socket.socket, pid: int, hang_up: bool) -> None:
        """Forwards the signals that the caller received, or notices that it has died."""
        try:
            numbers = caller.recv(64)
        except OSError:
            numbers = b""
        if not numbers:
            self._selector.unregister(caller)
            del self._callers[pid]
            caller.close()
            numbers = bytes([signal.SIGHUP] * hang_up)
        for number in numbers:
            if number in FORWARDED:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, number)

    def _reap(self, woken: socket.socket) -> None:
        woken.recv(4096)
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                caller = self._callers.pop(ended[0], None)
                if caller:
                    self._selector.unregister(caller)
                    code = os.waitstatus_to_exitcode(ended[1])
                    self._answer(caller, {"code": code if code >= 0 else 128 - code})

    @staticmethod
    def _answer(caller: socket.socket, answer: dict[str, object]) -> None:
        with caller, contextlib.suppress(OSError):
            caller.sendall(json.dumps(answer).encode("ascii"))


if __name__ == "__main__":
    main()
