"""Runs two ranks on this host that do one allreduce, as much as possible like ranks on two hosts.

Each rank is a member of the ring (`--topology flat`), and they communicate over libfabric instead
of MPI's shared memory.
"""

import os
import re
import subprocess
import sys

from hvd_ft.doctor.facts import Ring
from hvd_ft.errors import HvdFtError
from hvd_ft.installed.horovod_source import built_for
from hvd_ft.launcher.job import Job, resolve
from hvd_ft.launcher.run import launch
from hvd_ft.system.memory_file import memory_file
from hvd_ft.system.say import say

LIMIT_SECONDS = 180.0
WORKER = "hvd_ft.tools.check.worker"
RIGHT = "rank {rank}: the sum is right"
_ENVIRONMENT = {
    "I_MPI_FABRICS": "ofi",
    "I_MPI_HYDRA_BOOTSTRAP": "fork",
    "HOROVOD_FT_MAX_FAILURES": "0",  # the first failure is enough
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
_MPI_FOUND = "hvdft: ring: "  # how the job reports its MPI and fabric
# The end of that line, as mpi/capabilities.py has it.
_ENDPOINTS = re.compile(
    r"(\d+) endpoints?(?: each)? in use(?:, MPI has (\d+))?(?: \((?P<why>.*)\))?$"
)


def run_two_ranks() -> str:
    """Runs the job; returns a line that names the MPI and the provider it used.

    Raises:
        HvdFtError: The job failed; its output is then on stderr.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", "hvd_ft.tools.check.two_ranks"],
            env={**os.environ, **_ENVIRONMENT},
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=LIMIT_SECONDS,
        )
    except subprocess.TimeoutExpired as late:
        _show(late.stdout, late.stderr)
        shown = "their output above and " if late.stdout or late.stderr else ""
        raise HvdFtError(
            f"two ranks have not done an allreduce within {LIMIT_SECONDS:g} s; see {shown}what "
            "else runs on this host"
        ) from None
    lines = done.stderr.splitlines()
    right = [RIGHT.format(rank=rank) in done.stdout.splitlines() for rank in range(2)]
    found = [line.removeprefix(_MPI_FOUND) for line in lines if line.startswith(_MPI_FOUND)]
    if done.returncode or not all(right) or not found:
        said = [line.removeprefix("hvdft: ") for line in lines if line.startswith("hvdft: ")]
        reason = said[-1] if said else f"exit code {done.returncode}"
        if len(lines) > 1:
            _show(done.stdout, done.stderr)
            reason += "; see their output above"
        raise HvdFtError(f"two ranks could not do an allreduce: {reason}")
    return f"an allreduce over {found[0]}"


def ring_of(line: str) -> Ring | None:
    """Returns what MPI has given the job, by the line that `run_two_ranks` returns; None: other.

    Args:
        line: Of a part that was found.
    """
    told = _ENDPOINTS.search(line)
    return Ring(int(told[1]), int(told[2] or 1), told["why"] or "") if told else None


def _show(*outputs: str | bytes | None) -> None:
    for output in outputs:
        # After a timeout they are bytes, whatever was asked for.
        text = output.decode(errors="replace") if isinstance(output, bytes) else output
        if text:
            sys.stderr.write(text.rstrip("\n") + "\n")
            sys.stderr.flush()


def main() -> int:
    """Runs the job in this process's environment; returns its exit code."""
    try:
        with memory_file("localhost:2\n") as machines:
            command = [sys.executable, "-m", WORKER, built_for()[0].key]
            job = Job(2, command, machine_file=machines, topology="flat")
            return launch(resolve(job))
    except HvdFtError as error:
        say(error)
        return 2


if __name__ == "__main__":
    sys.exit(main())
