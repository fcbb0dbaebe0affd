"""Probes whether mpirun can start a process on a host."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping

from hvd_ft.mpi.environment import mpiexec_command
from hvd_ft.mpi.hydra_output import HydraFilter

_SECONDS = 15.0  # limit for ssh to give up or report
_MAX_REASON = 200


def why_ended(output: bytes, code: int) -> str:
    """Returns why mpirun has ended: the first line that is not Hydra's own, as of ssh.

    Args:
        output: that it has written.
        code: with which it has ended.
    """
    filtered = HydraFilter()
    text = filtered.feed(output) + filtered.rest()
    lines = [line.strip() for line in text.decode(errors="replace").splitlines()]
    said = next((line for line in lines if line), "")
    return said[:_MAX_REASON] or f"mpirun ended with exit code {code}"


class Probe:
    """An attempt to reach a host in the same way as mpirun.

    Args:
        host: its name.
        environment: the whole environment of mpirun.
    """

    def __init__(self, host: str, environment: Mapping[str, str]) -> None:
        self.host = host
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        self._deadline = time.monotonic() + _SECONDS
        command = [*mpiexec_command(1, environment), "-hosts", host, "true"]
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,
        )

    def result(self) -> str | None:
        """Returns why the host cannot be reached; "" if it can; None while this is not known."""
        if self._process.poll() is None:
            if time.monotonic() < self._deadline:
                return None
            return f"it does not answer within {_SECONDS:g} s"
        if self._process.returncode == 0:
            return ""
        self._output.seek(0)
        return why_ended(self._output.read(), self._process.returncode)

    def close(self) -> None:
        """Ends the attempt."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._output.close()
