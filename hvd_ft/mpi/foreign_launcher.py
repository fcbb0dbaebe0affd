"""Detects agents that were started by another MPI's launcher.

To Intel MPI such agents are separate jobs of one rank each, which would all train on their own and
succeed. The launcher's variables in the environment reveal it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hvd_ft.errors import HvdFtError


class Rank0SaysIt(Exception):
    """The error of every rank except the launcher's rank 0, which prints it for the user.

    These ranks end with code 0: at the first failure the launcher would kill the others, perhaps
    before rank 0 has printed anything.
    """


@dataclass(frozen=True)
class Start:
    """The place of this process in its job, according to the launcher.

    Attributes:
        launcher: its name.
        rank: of this process.
        size: of the job; None if the launcher does not set it.
    """

    launcher: str
    rank: int
    size: int | None


# Variables of rank and size, in order of precedence: the launcher nearest to the process comes
# first. SLURM_NTASKS in a batch script says nothing about the processes that the script starts.
_LAUNCHERS = (
    ("a launcher with a PMI of its own (MPICH's mpiexec, Slurm's srun)", "PMI_RANK", "PMI_SIZE"),
    ("Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("Slurm's srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("a PMIx launcher (Open MPI's, or Slurm's srun)", "PMIX_RANK", None),
)


def start_of(environ: Mapping[str, str]) -> Start | None:
    """Returns this process's place in its job; None without a launcher.

    Args:
        environ: of this process.
    """
    for launcher, rank, size in _LAUNCHERS:
        told = environ.get(rank, ""), environ.get(size, "") if size else None
        if told[0].isdecimal() and (told[1] is None or told[1].isdecimal()):
            return Start(launcher, int(told[0]), None if told[1] is None else int(told[1]))
    return None


def check_hydra(environ: Mapping[str, str]) -> None:
    """Checks before MPI_Init that MPICH's mpiexec is not the launcher: Intel MPI would abort.

    Args:
        environ: of this process.

    Raises:
        HvdFtError: it is; `Rank0SaysIt` in all ranks but its rank 0.
    """
    start = start_of(environ)
    # Each of the two Hydras sets a variable that the other does not.
    if start and "HYDI_CONTROL_FD" in environ and "I_MPI_HYDRA_UUID" not in environ:
        start = replace(start, launcher="MPICH's mpiexec")
        raise _refusal(start, "Intel MPI", "whose ranks it cannot start")


def check_launcher(environ: Mapping[str, str], size: int, library: str) -> None:
    """Checks that the launcher and MPI mean the same job.

    Args:
        environ: of this process.
        size: of MPI's world.
        library: MPI's own name.

    Raises:
        HvdFtError: they do not; `Rank0SaysIt` in all ranks but the launcher's rank 0.
    """
    start = start_of(environ)
    if start and start.size != size and not (start.size is None and size > 1):
        jobs = f"to which each of them is a job of {size}, so they would train apart"
        raise _refusal(start, library, jobs)


def _refusal(start: Start, library: str, why: str) -> Exception:
    count = "N" if start.size is None else start.size
    text = (
        f"{start.launcher} started this job of {count} ranks, but hvd_ft uses {library}, {why}; "
        f"start the job with 'hvdft run -np {count} …' or with Intel MPI's mpirun"
    )
    return HvdFtError(text) if start.rank == 0 else Rank0SaysIt(text)
