"""Agents that another MPI's launcher has started are refused, in one line for the whole job."""

import os
import re
import sys
from collections.abc import Callable

import pytest
from conftest import Ended, RunHvdft
from test_agent import AGENT

from hvd_ft.errors import HvdFtError
from hvd_ft.mpi.environment import mpi_environment
from hvd_ft.mpi.foreign_launcher import Rank0SaysIt, check_hydra, check_launcher, start_of

Variables = Callable[[int], dict[str, str]]

INTEL = "Intel(R) MPI Library 2021.18.1 for Linux* OS"


def open_mpi(rank: int, size: int = 2) -> dict[str, str]:
    """The variables about the job that Open MPI 4.1's mpirun sets."""
    return {
        "OMPI_COMM_WORLD_RANK": f"{rank}",
        "OMPI_COMM_WORLD_SIZE": f"{size}",
        "OMPI_COMM_WORLD_LOCAL_RANK": f"{rank}",
        "OMPI_COMM_WORLD_LOCAL_SIZE": f"{size}",
        "OMPI_UNIVERSE_SIZE": "8",
        "PMIX_NAMESPACE": "894238721",
        "PMIX_RANK": f"{rank}",
        "PMIX_SERVER_URI41": "894238720.0;tcp4://127.0.0.1:56217",
    }


def mpich(rank: int, size: int = 2) -> dict[str, str]:
    """What MPICH 4.0's mpiexec sets."""
    pmi = {"PMI_RANK": f"{rank}", "PMI_SIZE": f"{size}", "PMI_FD": "6", "HYDI_CONTROL_FD": "7"}
    return {**pmi, "MPI_LOCALNRANKS": f"{size}", "MPI_LOCALRANKID": f"{rank}"}


def intel(rank: int, size: int = 2) -> dict[str, str]:
    """What Intel MPI's mpiexec.hydra sets."""
    pmi = {"PMI_RANK": f"{rank}", "PMI_SIZE": f"{size}", "PMI_FD": "9"}
    return {**pmi, "I_MPI_HYDRA_UUID": "54510000-acaa-fa1a-f360-0600085cf34c"}


def srun(rank: int, size: int = 2) -> dict[str, str]:
    """What Slurm's srun sets, without a PMI."""
    return {"SLURM_PROCID": f"{rank}", "SLURM_STEP_NUM_TASKS": f"{size}", "SLURM_NTASKS": "64"}


BATCH = {"SLURM_PROCID": "0", "SLURM_NTASKS": "64", "SLURM_JOB_ID": "7"}  # in an sbatch script


@pytest.mark.parametrize(
    ("environ", "rank", "size", "launcher"),
    [
        (open_mpi(1, 3), 1, 3, "Open MPI's mpirun"),
        (srun(1, 3), 1, 3, "Slurm's srun"),
        ({**srun(0, 1), **open_mpi(2, 3)}, 2, 3, "Open MPI's mpirun"),
        ({**open_mpi(0, 1), **intel(2, 3)}, 2, 3, "PMI of its own"),
        ({**BATCH, **intel(2, 3)}, 2, 3, "PMI of its own"),
        ({"PMIX_RANK": "4", "PMIX_NAMESPACE": "x"}, 4, None, "PMIx"),
    ],
)
def test_what_a_launcher_says(
    environ: dict[str, str], rank: int, size: int | None, launcher: str
) -> None:
    start = start_of(environ)
    assert start is not None
    assert (start.rank, start.size) == (rank, size)
    assert launcher in start.launcher


@pytest.mark.parametrize("environ", [{}, BATCH, {"PMI_RANK": "", "PMI_SIZE": "2"}])
def test_no_launcher(environ: dict[str, str]) -> None:
    assert start_of(environ) is None
    check_launcher(environ, 1, INTEL)


@pytest.mark.parametrize(
    ("environ", "size"),
    [
        (intel(0), 2),
        ({**BATCH, **intel(0)}, 2),
        ({**open_mpi(0, 1), **intel(0, 4)}, 4),  # hvdft run in a script that Open MPI has started
        (open_mpi(0, 1), 1),
        ({"PMIX_RANK": "0"}, 4),  # Intel MPI on Slurm's PMIx
        ({**srun(0, 4), "PMI_RANK": "0", "PMI_SIZE": "4"}, 4),  # and on its PMI-2
    ],
)
def test_launchers_that_mean_the_same_job(environ: dict[str, str], size: int) -> None:
    check_hydra(environ)
    check_launcher(environ, size, INTEL)


@pytest.mark.parametrize(
    ("others", "name"),
    [
        (open_mpi, "Open MPI's mpirun started this job of 2 ranks"),
        (srun, "Slurm's srun started this job of 2 ranks"),
        (lambda rank: {"PMIX_RANK": f"{rank}"}, "a PMIx launcher"),
        (intel, "a launcher with a PMI of its own"),
    ],
)
def test_rank_0_names_both_mpis_and_the_remedy(others: Variables, name: str) -> None:
    with pytest.raises(HvdFtError, match=re.escape(name)) as error:
        check_launcher(others(0), 1, INTEL)
    assert f"but hvd_ft uses {INTEL}, " in str(error.value)
    assert re.search(r"start the job with 'hvdft run -np [2N] …'", str(error.value))
    with pytest.raises(Rank0SaysIt):
        check_launcher(others(1), 1, INTEL)


def test_mpichs_hydra_is_known_before_mpi_is_started() -> None:
    with pytest.raises(HvdFtError, match="MPICH's mpiexec started this job of 2 ranks"):
        check_hydra(mpich(0))
    with pytest.raises(Rank0SaysIt):
        check_hydra(mpich(1))
    check_hydra({**mpich(0), **intel(0)})  # hvdft run in a script that MPICH has started
    check_hydra({})


def run_agent(run_hvdft: RunHvdft, environ: dict[str, str]) -> Ended:
    command = [sys.executable, "-c", "print('trained')"]
    return run_hvdft(command, env={**mpi_environment(), **environ}, program=AGENT)


@pytest.mark.shows
@pytest.mark.parametrize("launcher", [open_mpi, mpich, srun])
def test_an_agent_of_a_foreign_launcher_does_not_train(
    run_hvdft: RunHvdft, launcher: Variables
) -> None:
    ended = run_agent(run_hvdft, launcher(0))
    assert (ended.code, ended.out) == (2, "")
    [line] = ended.err.splitlines()
    assert line.startswith("hvdft: ")
    assert "started this job of 2 ranks, but hvd_ft uses Intel" in line
    # At the first failure Open MPI would kill rank 0, perhaps before it has said that.
    assert run_agent(run_hvdft, launcher(1)) == Ended(0, "", "")


def test_a_job_in_a_script_of_a_foreign_launcher_runs(run_hvdft: RunHvdft) -> None:
    program = ["mpiexec.hydra", "-n", "2", *AGENT]
    code = "import os; os.write(1, os.environ['HOROVOD_SIZE'].encode() + b' ')"
    environ = {**os.environ, **mpi_environment(), **open_mpi(0, 1)}
    ended = run_hvdft([sys.executable, "-c", code], env=environ, program=program)
    assert (ended.code, ended.out, ended.err) == (0, "2 2 ", "")


def test_the_worker_of_one_rank_of_open_mpi_runs(run_hvdft: RunHvdft) -> None:
    ended = run_agent(run_hvdft, open_mpi(0, 1))
    assert (ended.code, ended.out) == (0, "trained\n")
