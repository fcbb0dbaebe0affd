"""Detects agents that were started by another MPI's launcher.

To Intel MPI such agents are so many jobs of one rank each, which would all train on their own and
end well. What the launcher has said of the job in the environment tells it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hvd_ft.errors import HvdFtError


class Rank0SaysIt(Exception):
    """The error of all ranks but the launcher's rank 0, which tells the user. They end with code 0.

    At the first one that failed the launcher would kill the others, perhaps before rank 0 has said
    anything.
    """


@dataclass(frozen=True)
class Start:
    """What the launcher that started this process says of it.

    Attributes:
        launcher: its name.
        rank: of this process.
        size: of the job; None if it does not say.
    """

    launcher: str
    rank: int
    size: int | None


# Variables of rank and size, in the order in which they count: what is started last, and nearest
# to the process, comes first. A batch script's own SLURM_NTASKS says nothing of what it starts.
_LAUNCHERS = (
    ("a launcher with a PMI of its own (MPICH's mpiexec, Slurm's srun)", "PMI_RANK", "PMI_SIZE"),
    ("Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("Slurm's srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("a PMIx launcher (Open MPI's, or Slurm's srun)", "PMIX_RANK", None),
)


def start_of(environ: Mapping[str, str]) -> Start | None:
    """Returns what the launcher says of this process; None if there is none.

    Args:
        environ: of this process.
    """
    for launcher, rank, size in _LAUNCHERS:
        told = environ.get(rank, ""), environ.get(size, "") if size else None
        if told[0].isdecimal() and (told[1] is None or told[1].isdecimal()):
            return Start(launcher, int(told[0]), None if told[1] is None else int(told[1]))
    return None


def check_hydra(environ: Mapping[str, str]) -> None:
    """Checks, before MPI is initialised, that this is not MPICH's mpiexec: Intel MPI would abort.

    Args:
        environ: of this process.

    Raises:
        HvdFtError: it is; `Rank0SaysIt` in all ranks but its rank 0.
    """
    start = start_of(environ)
    # Either Hydra has a variable that the other one does not set.
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
