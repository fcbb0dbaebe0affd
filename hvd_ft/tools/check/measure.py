"""The short test of a host: its CPUs, its memory, and its link to another host."""

from __future__ import annotations

import hmac
import os
import socket
import threading
import time
from collections.abc import Callable

from hvd_ft.doctor.between_rules import Speed
from hvd_ft.system.cgroup_limits import throttled

SECONDS = 0.3  # of each part
CONNECT_SECONDS = 5.0
_COPY_BYTES = 256 << 20  # read and written in a round, by all threads together
_ORDER = 256  # of the matrices
_CHUNK = bytes(256 << 10)


def measure_speed() -> Speed:
    """Measures all CPUs that this process may use, and their memory; takes 2 * `SECONDS`.

    OPENBLAS_NUM_THREADS has to be 1 in this process: the threads are ours.
    """
    import numpy as np

    cpus = len(os.sched_getaffinity(0))
    matrices = [np.ones((_ORDER, _ORDER), np.float32) for _ in range(cpus)]
    part = max(_COPY_BYTES // 2 // cpus // 8, 1)
    copies = [(np.ones(part), np.ones(part)) for _ in range(cpus)]

    def multiply(thread: int) -> float:
        np.dot(matrices[thread], matrices[thread])
        return 2.0 * _ORDER**3 / 1e9

    def copy(thread: int) -> float:
        source, target = copies[thread]
        np.copyto(target, source)
        return 2.0 * source.nbytes / 1e9

    before = throttled()
    cpu, memory = _rate(cpus, multiply), _rate(cpus, copy)
    stopped, periods = (now - then for now, then in zip(throttled(), before, strict=True))
    return Speed(cpu, memory, stopped / periods if periods else 0.0)


def _rate(threads: int, work: Callable[[int], float]) -> float:
    """Returns how much of it all threads do in a second, taken together."""
    done = [0.0] * threads
    begin = time.monotonic()

    def go_on(thread: int) -> None:
        while True:  # once at least: a thread of a busy host may start when the time is over
            done[thread] += work(thread)
            if time.monotonic() - begin >= SECONDS:
                return

    running = [threading.Thread(target=go_on, args=(thread,)) for thread in range(threads)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    return sum(done) / (time.monotonic() - begin)


def send(address: str, port: int, token: str) -> str:
    """Sends to another host until it has had enough; returns why it cannot, or "".

    Args:
        address: of the other host.
        port: where it listens.
        token: by which it knows us.
    """
    try:
        with socket.create_connection((address, port), CONNECT_SECONDS) as end:
            end.settimeout(CONNECT_SECONDS)
            end.sendall(token.encode())
            try:
                while True:
                    end.sendall(_CHUNK)
            except (BrokenPipeError, ConnectionResetError):  # it has had enough
                return ""
    except OSError as error:
        return f"{address} port {port}: {error.strerror or error}"


def receive(listener: socket.socket, token: str) -> float:
    """Receives from the host that has a token; returns MB a second, 0.0 if none comes in time.

    Args:
        listener: its connections that have another token are closed.
        token: of the one that is expected.
    """
    deadline = time.monotonic() + CONNECT_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        listener.settimeout(left)
        try:
            end, _ = listener.accept()
        except OSError:
            break
        with end:
            end.settimeout(CONNECT_SECONDS)
            rate = _received(end, token)
            if rate is not None:
                return rate
    return 0.0


def _received(end: socket.socket, token: str) -> float | None:
    """Returns the rate of one connection; None: it is not the one that is expected."""
    try:
        said = end.recv(len(token), socket.MSG_WAITALL)
        if not hmac.compare_digest(said, token.encode()):
            return None
        begin, count = time.monotonic(), 0
        buffer = bytearray(len(_CHUNK))
        while (taken := time.monotonic() - begin) < SECONDS:
            count += end.recv_into(buffer)
        return count / taken / 1e6
    except OSError:
        return 0.0
