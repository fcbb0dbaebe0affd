"""The hosts that `--host-discovery-script` names: the script runs once a second."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence

from hvd_ft.errors import HvdFtError
from hvd_ft.members.hosts import Host, parse_hosts
from hvd_ft.system.say import say
from hvd_ft.system.wait_status import describe_code

_PERIOD_SECONDS = 1.0  # horovodrun's too
_LIMIT_SECONDS = 60.0  # for one run of the script
_MOST_BYTES = 1 << 20


class Discovery:
    """Runs the script in the background; it prints one host a line, `HOST` or `HOST:SLOTS`.

    Args:
        script: the shell command.
        slots: the slots of a host that is printed without a number.
    """

    def __init__(self, script: str, slots: int) -> None:
        self._script = script
        self._slots = slots
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        self._process: subprocess.Popen[bytes] | None = None
        self._next = float("-inf")
        self._begun = 0.0
        self._said = ""

    def poll(self, now: float) -> Sequence[Host] | None:
        """Returns the hosts if a run of the script has ended well since the last call, else None.

        Args:
            now: the time in seconds, by a steady clock.
        """
        if self._process is None:
            if now >= self._next:
                self._start(now)
            return None
        if (code := self._process.poll()) is None:
            if now > self._begun + _LIMIT_SECONDS:
                os.killpg(self._process.pid, signal.SIGKILL)
            return None
        self._process, self._next = None, self._begun + _PERIOD_SECONDS
        try:
            if code:
                raise HvdFtError(f"it ended with {describe_code(code)}")
            found = self._parse()
        except HvdFtError as error:
            self._complain(str(error))
            return None
        self._said = ""
        return found

    def close(self) -> None:
        """Ends the script."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._output.close()

    def _start(self, now: float) -> None:
        self._begun = now
        self._output.seek(0)
        self._output.truncate()
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", self._script],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            start_new_session=True,
        )

    def _parse(self) -> tuple[Host, ...]:
        self._output.seek(0)
        text = self._output.read(_MOST_BYTES).decode(errors="replace")
        words = [line.strip() for line in text.splitlines() if line.strip()]
        names = [word if ":" in word else f"{word}:{self._slots}" for word in words]
        hosts = parse_hosts(",".join(names), 0, "its output") if names else ()
        if len({host.name for host in hosts}) < len(hosts):
            raise HvdFtError("it names a host twice")
        return hosts

    def _complain(self, reason: str) -> None:
        """Reports an error of the script once; the hosts of its last good run stay."""
        if reason != self._said:
            self._said = reason
            say(f"--host-discovery-script {self._script}: {reason}; the hosts stay as they were")
