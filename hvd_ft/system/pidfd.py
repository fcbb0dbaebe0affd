"""Pidfds: descriptors of processes.

A process id may mean another process as soon as the one that had it is dead and reaped. A pidfd
never does. So a process that is not our child is watched and signalled by one that it has sent
itself, or that was opened when it was certainly alive.
"""

import contextlib
import os
import select
import signal
import time
from collections.abc import Collection, Iterator

import psutil

from hvd_ft.system.ready import is_ready


@contextlib.contextmanager
def pidfd_of_this_process() -> Iterator[int]:
    """Yields a pidfd of the calling process, to be handed to another one."""
    descriptor = os.pidfd_open(os.getpid())
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def has_ended(pidfd: int, seconds: float = 0.0) -> bool:
    """Returns whether the process of a pidfd is dead, or dies within so many seconds."""
    return is_ready(pidfd, seconds=seconds)


def send_signal(pidfd: int, number: int) -> None:
    """Sends a signal to the process of a pidfd, unless it is dead."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, number)


def open_pidfd(process: psutil.Process) -> int | None:
    """Opens the pidfd of a process that was found by looking; None if it is dead by now."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return None
    if process.is_running():  # compares when it was started
        return descriptor
    os.close(descriptor)
    return None


def await_one(processes: Collection[psutil.Process], seconds: float) -> bool:
    """Waits until one of the processes is dead, ours or not; False if none is in time."""
    poll = select.poll()
    descriptors = []
    try:
        for process in processes:
            if (descriptor := open_pidfd(process)) is None:
                return True
            descriptors.append(descriptor)
            poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(max(0.0, seconds) * 1000))
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def await_all(processes: Collection[psutil.Process], deadline: float) -> None:
    """Waits until the processes are dead, ours or not, or until a `time.monotonic()` deadline."""
    # psutil.wait_procs() would wait for zombies, which some containers keep for ever.
    for process in processes:
        await_one([process], deadline - time.monotonic())
