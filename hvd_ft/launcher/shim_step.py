"""A step of a Slurm job for shims and workers, which the death of an agent does not end.

Hydra starts agents through srun, in a step that ends when one of them dies. With proctrack/cgroup
Slurm then kills everything that was started in this step. So shims are started in another step,
which lasts as long as the job. It has one process per host (shim/starter.py), which notices the end
of the launcher by the end of its standard input.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence

from hvd_ft.launcher.job import ResolvedJob, starts_by_slurm
from hvd_ft.system.event_loop import EventLoop, Watch
from hvd_ft.system.say import say

VARIABLE = "HOROVOD_FT_SHIM_STARTER"  # for agents: the name of the socket
_LISTENS = b"listens "  # a line of each process, once agents can use it
_LAST_LINES = 3
_CHUNK_BYTES = 1 << 16


def step_command(hosts: Sequence[str], name: str) -> list[str]:
    """Returns the command line of the step.

    Args:
        hosts: the hosts, on each of which it has one process.
        name: the name of the socket at which agents find it.
    """
    count, names = str(len(hosts)), ",".join(hosts)
    return [
        *("srun", "--overlap", "--no-kill", "--kill-on-bad-exit=0", "--unbuffered", "--quiet"),
        *("--mpi=none", "--cpu-bind=none", "--job-name=hvdft-shims"),
        *("--nodes", count, "--ntasks", count, "--ntasks-per-node=1", "--nodelist", names),
        *(sys.executable, "-m", "hvd_ft.shim.starter", name),
    ]


def start_step(
    loop: EventLoop, resolved: ResolvedJob, stopped: Callable[[], bool]
) -> ShimStep | None:
    """Starts a step for shims if Slurm starts the agents; the job also runs without one.

    Args:
        loop: the loop that reads its output.
        resolved: the job. Its start timeout limits the start of the step.
        stopped: whether the job is to end.

    Returns:
        The step; None if there is none. If Slurm should have started one, a line says why not.
    """
    if not starts_by_slurm(resolved.plain):
        return None
    job = resolved.job
    hosts = [host.name for host in (*job.hosts, *job.spare_hosts)]
    step = ShimStep(loop, hosts, job.id, resolved.plain)
    deadline = loop.now() + resolved.settings.start_timeout_seconds
    while step.runs and not step.listens and not stopped():
        if (left := deadline - loop.now()) <= 0:
            break
        loop.run_once(left)
    if step.listens or stopped():
        return step
    say(
        f"Slurm has not started a step for shims ({step.why_not()}): where it uses "
        "proctrack/cgroup, the death of an agent ends the job"
    )
    step.end()
    return None


class ShimStep:
    """The step.

    Args:
        loop: the loop that reads its output.
        hosts: the hosts of the job, and its spare hosts.
        job: the job's id.
        environment: the whole environment of the step.
    """

    def __init__(
        self, loop: EventLoop, hosts: Sequence[str], job: str, environment: Mapping[str, str]
    ) -> None:
        self._loop = loop
        self._missing = len(hosts)
        self._text = b""
        self.name = f"hvdft-shims-{job}"
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._srun: subprocess.Popen[bytes] | None = subprocess.Popen(
                step_command(hosts, self.name),
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,  # Ctrl-C reaches us, and we end the job in order
            )
        except OSError as error:
            self._srun, self._problem = None, f"srun: {error.strerror}"
            return
        self._problem = ""
        assert self._srun.stdout
        self._output: Watch | None = loop.watch(self._srun.stdout, self._hear)

    @property
    def listens(self) -> bool:
        """Whether agents on all hosts can have shims started."""
        return self._missing <= 0 and self.runs

    @property
    def runs(self) -> bool:
        """Whether the step is still running."""
        return self._srun is not None and self._output is not None

    def why_not(self) -> str:
        """Returns the reason why the step does not listen on all hosts."""
        if self._problem:
            return self._problem
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").splitlines()
        said = "; ".join(line.strip() for line in lines if line.strip())
        last = said[-300:] if len(lines) <= _LAST_LINES else "; ".join(lines[-_LAST_LINES:])
        return last or f"{self._missing} of its processes have not begun in time"

    def close(self) -> None:
        """Lets each process of the step end once its host has no shim any more."""
        if self._srun is not None and self._srun.stdin is not None:
            with contextlib.suppress(OSError):
                self._srun.stdin.close()

    def end(self) -> None:
        """Ends srun at once."""
        self.close()
        if self._srun is not None:
            if self._output is not None:
                self._output.end()
                self._output = None
            self._srun.kill()
            self._srun.wait()
            assert self._srun.stdout
            self._srun.stdout.close()
        self._errors.close()

    def _hear(self) -> None:
        assert self._srun
        assert self._srun.stdout
        assert self._output
        data = os.read(self._srun.stdout.fileno(), _CHUNK_BYTES)
        if not data:
            self._output.end()
            self._output = None
            return
        *lines, self._text = (self._text + data).split(b"\n")
        for line in lines:
            self._missing -= line.startswith(_LISTENS)
