"""Recognises jobs of which only processes are left that are stopped for ever (SIGSTOP).

A stopped shim holds the lock of its job's directory. If its host is replaced, or the job ends,
nobody is left to end the shim, and the directory would stay until the host is rebooted.

A stopped process alone proves nothing, because a shell, a debugger or a fence stops healthy ones.
But a launcher that refuses connections is dead, and then a shim that is not stopped ends its job's
processes by itself (shim/launcher_line.py). The next process that looks at the directory does so in
place of a stopped shim.
"""

import contextlib
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psutil

from hvd_ft.job.processes import job_processes

_CONNECT_SECONDS = 1.0  # a launcher that is not known to be dead after that counts as alive


@dataclass(frozen=True)
class Holder:
    """A process that holds the lock of a job's directory.

    Attributes:
        stopped: whether it is stopped by a signal.
        connected: whether it has a connection to another process.
        launcher: the address of its launcher; None if it cannot be asked from here.
    """

    stopped: bool
    connected: bool
    launcher: str | None


def are_abandoned(holders: Sequence[Holder], refuses: Callable[[str], bool]) -> bool:
    """Returns whether the holders of a job's lock are stopped, and their launchers dead. Pure.

    Args:
        holders: all that are known.
        refuses: returns whether connections to an address are refused.
    """
    if not all(holder.stopped and not holder.connected for holder in holders):
        return False
    launchers = {holder.launcher for holder in holders}
    return bool(launchers) and all(each is not None and refuses(each) for each in launchers)


def is_abandoned(job: str, lock: str) -> bool:
    """Returns whether only processes that are stopped for ever hold the lock of a job.

    Args:
        job: the id of the job.
        lock: the path of its lock.
    """
    return are_abandoned(_holders(job, lock), _refuses)


def _holders(job: str, lock: str) -> list[Holder]:
    holders, path = [], os.path.realpath(lock)
    for process in job_processes(job):
        with contextlib.suppress(psutil.Error, OSError):
            if any(file.path == path for file in process.open_files()):
                holders.append(_holder(process))
    return holders


def _holder(process: psutil.Process) -> Holder:
    connections = process.net_connections(kind="tcp")
    # Another network may have nobody at that address.
    here = os.stat("/proc/self/ns/net").st_ino == os.stat(f"/proc/{process.pid}/ns/net").st_ino
    return Holder(
        stopped=process.status() == psutil.STATUS_STOPPED,
        connected=any(each.status == psutil.CONN_ESTABLISHED for each in connections),
        launcher=process.environ().get("HOROVOD_FT_LAUNCHER") if here else None,
    )


def _refuses(address: str) -> bool:
    try:
        host, port, _ = address.rsplit(":", 2)
        socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
    except ConnectionRefusedError:
        return True
    except (OSError, ValueError):
        pass
    return False
