"""`hvdft clean`: removes the files of dead jobs, including jobs that could be resumed."""

import os
import subprocess
from collections.abc import Sequence

from hvd_ft.errors import HvdFtError
from hvd_ft.install.environment import mpi_environment, mpiexec_command
from hvd_ft.job.directory import job_path, sweep_stale
from hvd_ft.job.hosts import Host
from hvd_ft.job.settings import Settings


def clean(job: str | None) -> list[str]:
    """Removes the directories of dead jobs on this host.

    Args:
        job: the id of the only job to remove; None: all dead jobs.

    Returns:
        The ids of those that were removed.

    Raises:
        HvdFtError: that job is still running here, or the directory cannot be used.
    """
    arena_dir = Settings.from_env(os.environ).arena_dir
    removed = sweep_stale(arena_dir, only=job)
    if job and not removed and os.path.isdir(job_path(arena_dir, job)):
        raise HvdFtError(
            f"job {job} has processes on this host: end hvdft run first, or wait until "
            "HOROVOD_FT_HOST_TIMEOUT_SECONDS is over"
        )
    return removed


def clean_hosts(job: str | None, hosts: Sequence[Host]) -> int:
    """Does the same on other hosts through mpirun; returns its exit code."""
    environment = {**os.environ, **mpi_environment(one_host=False)}
    names = ",".join(host.name for host in hosts)
    command = [*mpiexec_command(len(hosts), environment), "-ppn", "1", "-hosts", names]
    command += ["hvdft", "clean", *([job] if job else [])]
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=False)
    return done.returncode
