"""A job of `hvdft tune`: it runs while its settings are compared, and idles between rounds."""

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hvd_ft.errors import HvdFtError
from hvd_ft.system.channel import Channel, Message
from hvd_ft.tools.driven_job import listen_at, start_job

START_SECONDS = 180.0
MEASURE_SECONDS = 300.0
END_SECONDS = 60.0  # longer than hvdft run's own limits
_LAST_LINES = 2
# A rank waits as long as another job has its turn; a tuning must not be measured by another one's.
_OWN = {"HOROVOD_FT_STALL_WARNING_SECONDS": "0", "HOROVOD_FT_TUNING_FILE": "off"}


class Side:
    """A job with some settings.

    Args:
        scratch: A private directory, with a short path.
        name: The name of its files in that directory.
    """

    def __init__(self, scratch: Path, name: str) -> None:
        self._log = scratch / f"{name}.log"
        self._address = str(scratch / f"{name}.socket")
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self.cpus: list[int] = []  # of each rank's host

    def start(self, flags: Sequence[str], variables: Mapping[str, str]) -> None:
        """Starts the job; returns when it is ready to measure.

        Args:
            flags: The flags of hvdft run.
            variables: Additional environment variables.

        Raises:
            HvdFtError: The job does not start.
        """
        run = [sys.executable, "-m", "hvd_ft.cli", "run", "--no-live", *flags]
        worker = [sys.executable, "-m", "hvd_ft.tools.tune.worker", self._address]
        with socket.socket(socket.AF_UNIX) as listener, self._log.open("wb") as log:
            listen_at(listener, self._address, 1)
            environment = {**os.environ, **_OWN, **variables}
            self._process = start_job([*run, *worker], environment, log)
            deadline = time.monotonic() + START_SECONDS
            self._await(listener, deadline)
            self._channel = Channel(listener.accept()[0])
            self.cpus = self._receive(deadline)["cpus"]

    def measure(self, sizes: Sequence[int]) -> list[float]:
        """Measures one round: seconds of an allreduce of each size.

        Raises:
            HvdFtError: The job failed.
        """
        assert self._channel
        try:
            self._channel.send({"sizes": list(sizes)})
        except OSError:
            raise self._error("rank 0 has died") from None
        seconds: list[float] = self._receive(time.monotonic() + MEASURE_SECONDS)["seconds"]
        return seconds

    def _receive(self, deadline: float) -> Message:
        assert self._channel
        while True:
            self._await(self._channel, deadline)
            messages = self._channel.receive()
            if messages is None:
                raise self._error("rank 0 has ended")
            if messages:
                return messages[0]

    def _await(self, file: Any, deadline: float) -> None:
        """Waits until a file can be read."""
        assert self._process
        with selectors.DefaultSelector() as selector:
            ended = os.pidfd_open(self._process.pid)
            try:
                for each in (file, ended):
                    selector.register(each, selectors.EVENT_READ)
                ready = [key.fileobj for key, _ in selector.select(deadline - time.monotonic())]
            finally:
                os.close(ended)
        if file in ready:
            return
        raise self._error(
            f"hvdft run ended with code {self._process.wait()}" if ready else "it took too long"
        )

    def _error(self, reason: str) -> HvdFtError:
        lines = self._log.read_text(errors="replace").splitlines()
        last = [line.strip() for line in lines if line.strip()][-_LAST_LINES:]
        said = f"; its output ends with: {' | '.join(last)}" if last else ""
        return HvdFtError(f"a job failed: {reason}{said}")

    def end(self) -> None:
        """Lets the job end by itself, or ends it."""
        if self._channel is not None:
            with contextlib.suppress(OSError):
                self._channel.send({"sizes": None})
        process = self._process
        if process is not None:
            if self._channel is None:
                process.send_signal(signal.SIGINT)  # hvdft run cleans up after itself
            for step in (lambda: process.send_signal(signal.SIGINT), process.kill, lambda: None):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(END_SECONDS)
                    break
                step()
        if self._channel is not None:
            self._channel.close()
