"""The launchers above an agent: horovodrun, the mpirun script, Hydra's mpiexec and its proxy.

The first two start another process and wait for it. A signal that ends only them (`kill`, a
scheduler) does not reach that process, so the job would go on unattended. Hydra's own two usually
take the agents along when they are killed, but not always: a proxy that is writing to a dead
mpiexec just ends.
"""

import contextlib
import os

import psutil

from hvd_ft.job.drills import AGENT_STOPS, MPIRUN_DIES
from hvd_ft.system.pidfd import open_pidfd

_LAUNCHERS = {"horovodrun", "mpirun", "mpiexec", "mpiexec.hydra", "hydra_pmi_proxy"}


def launchers_above() -> dict[int, str]:
    """Returns a pidfd for every launcher above the calling process, with its name and id."""
    found = {}
    for process in psutil.Process().parents():
        # A process of another user, or one that has just ended, is skipped.
        with contextlib.suppress(psutil.Error, OSError):
            if not is_launcher(process.cmdline()):
                continue
            name = f"{process.name()} (pid {process.pid})"
            if (pidfd := open_pidfd(process)) is not None:
                found[pidfd] = name
    return found


def strike(drill: int, agent: int) -> None:
    """Executes a drill: kills or stops an agent, or kills the mpirun above it.

    Args:
        drill: one of `AGENT_DIES`, `AGENT_STOPS` and `MPIRUN_DIES`.
        agent: its process id. On a host without mpirun its proxy is killed instead.
    """
    with contextlib.suppress(psutil.Error):
        victim = psutil.Process(agent)
        if drill == MPIRUN_DIES:
            above = [process for process in victim.parents() if is_launcher(process.cmdline())]
            by_name = {process.name(): process for process in above}
            victim = by_name.get("mpiexec.hydra") or (above[0] if above else victim)
        victim.suspend() if drill == AGENT_STOPS else victim.kill()


def is_launcher(argv: list[str]) -> bool:
    """Returns whether a command line is that of a launcher.

    Args:
        argv: such as `["/bin/sh", "/opt/mpi/bin/mpirun", "-np", "4"]`, or `["/bin/sh", "-c",
            "mpirun …"]`, as started by horovodrun.
    """
    names = [os.path.basename(word) for word in argv[:2]]
    if names == ["sh", "-c"]:
        return argv[-1].startswith("mpirun ")
    return not _LAUNCHERS.isdisjoint(names)
