"""`hvdft clean`: removes the files of dead jobs; those of resumable jobs if the user agrees."""

import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hvd_ft.errors import HvdFtError
from hvd_ft.job.directory import dead_jobs, job_path, sweep_stale
from hvd_ft.job.peer_file import PeerFile
from hvd_ft.job.settings import Settings
from hvd_ft.launcher.shared_record import SharedRecord
from hvd_ft.members.hosts import Host
from hvd_ft.mpi.environment import mpi_environment, mpiexec_command


@dataclass(frozen=True)
class Request:
    """What the user wants.

    Attributes:
        job: id of the only job to remove, for which no consent is needed; None: all dead jobs.
        consents: whether jobs that could be resumed are removed too.
        dry_run: whether nothing is removed.
    """

    job: str | None
    consents: bool = False
    dry_run: bool = False


def clean(request: Request, ask: Callable[[str], bool]) -> str:
    """Removes the directories of dead jobs on this host; returns a line that lists them.

    Args:
        request: what the user wants.
        ask: asks the user a question; returns False if there is nobody to answer.

    Raises:
        HvdFtError: the job of the request is still running here, or the directory cannot be used.
    """
    settings = Settings.from_env(os.environ)
    arena_dir = settings.arena_dir
    dead = dead_jobs(arena_dir, request.job)
    if request.job and not dead and os.path.isdir(job_path(arena_dir, request.job)):
        raise HvdFtError(
            f"job {request.job} has processes on this host: end hvdft run first, or wait until "
            "HOROVOD_FT_HOST_TIMEOUT_SECONDS is over"
        )
    if request.dry_run:
        could = {True: " (could be resumed)", False: ""}
        return f"would remove {_words([f'{job}{could[kept]}' for job, kept in dead.items()])}"
    kept = [job for job, resumable in dead.items() if resumable]
    if not kept or request.job or request.consents or ask(f"{_question(kept)} Remove also these?"):
        kept = []
    # Those that were not seen here may be resumable.
    known = [job for job in dead if job not in kept]
    removed = [job for each in known for job in sweep_stale(arena_dir, only=each)]
    if settings.shared_dir:
        for job in removed:
            _remove_shared(settings.shared_dir, job)
    left = f"; {_question(kept)} --yes, or the id of one, removes them" if kept else ""
    return f"removed {_words(removed)}{left}"


def _remove_shared(directory: str, job: str) -> None:
    """Removes a job's files in HOROVOD_FT_SHARED_DIR unless another host may lead the job."""
    record = SharedRecord(directory, job)
    try:
        found = record.read()
    except OSError:
        return  # it is damaged, or its directory does not answer
    if found is None or found.released:
        record.remove()
        PeerFile(directory, job).remove()


def clean_hosts(request: Request, hosts: Sequence[Host], ask: Callable[[str], bool]) -> int:
    """Does the same as `clean` on other hosts; returns the exit code of mpirun.

    Args:
        request: what the user wants.
        hosts: the other hosts.
        ask: as for `clean`; asked here, once for all hosts.
    """
    environment = {**os.environ, **mpi_environment(one_host=False)}
    names = ",".join(host.name for host in hosts)
    question = f"Remove the files of dead jobs on {names}, also of those that could be resumed?"
    consents = request.consents or (not (request.job or request.dry_run) and ask(question))
    flags = [
        *(["--yes"] if consents else []),
        *(["--dry-run"] if request.dry_run else []),
        *([request.job] if request.job else []),
    ]
    command = [*mpiexec_command(len(hosts), environment), "-ppn", "1", "-hosts", names]
    command += ["hvdft", "clean", *flags]
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=False)
    return done.returncode


def _words(jobs: Sequence[str]) -> str:
    return ", ".join(jobs) or "nothing"


def _question(jobs: Sequence[str]) -> str:
    each = "could be resumed (hvdft run --resume JOB)."
    return f"{', '.join(jobs)} {each}"
