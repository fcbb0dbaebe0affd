"""The command and the environment of a worker."""

import os
import shutil
from collections.abc import Mapping, Sequence

import hvd_ft
from hvd_ft import libraries
from hvd_ft.errors import HvdFtError
from hvd_ft.job.placement import Nodes

# What hvdft run gives the agents alone.
_OF_AGENTS = frozenset(
    f"HOROVOD_FT_{name}" for name in ("LAUNCHER", "MEMBERS", "ACT_LEASE", "SHIM_STARTER")
)
_MPI_GUARD = os.path.join(os.path.dirname(hvd_ft.__file__), "worker", "mpi_guard")

_TIMELINE = "HOROVOD_TIMELINE"
_STARTED_BY_SCRIPT = "DYNAMIC"  # Horovod's word for hvd.start_timeline()


def check_command(command: Sequence[str]) -> None:
    """Checks that a worker's command can be started.

    Args:
        command: its words.

    Raises:
        HvdFtError: there is none, or the program or its Python script does not exist.
    """
    if not command:
        raise HvdFtError("no training command: give it last, as in: hvdft agent python train.py")
    program = command[0]
    if shutil.which(program) is None:
        raise HvdFtError(
            f"the command {program} was not found or is not executable: check its path"
        )
    script = _python_script(command)
    if script and not os.path.exists(script):
        raise HvdFtError(f"the script {script} was not found (looked in {os.getcwd()}): check it")


def _python_script(command: Sequence[str]) -> str | None:
    """Returns the script of a Python command line, if any."""
    if not os.path.basename(command[0]).startswith("python"):
        return None
    words = iter(command[1:])
    for word in words:
        if word in ("-W", "-X"):
            next(words, None)
        elif word.startswith(("-c", "-m")) or word == "-":
            return None
        elif not word.startswith("-"):
            return word
    return None


def incarnation_environment(environ: Mapping[str, str], incarnation: int) -> dict[str, str]:
    """Returns the variables of a worker that depend on its incarnation.

    Horovod begins the file of its timeline anew, so each restarted process writes one of its own:
    `timeline.1.json` beside `timeline.json`.

    Args:
        environ: of the worker, whatever its incarnation.
        incarnation: its number.
    """
    own = {"HOROVOD_FT_INCARNATION": str(incarnation)}
    timeline = environ.get(_TIMELINE, "")
    if incarnation > 0 and timeline not in ("", _STARTED_BY_SCRIPT):
        stem, extension = os.path.splitext(timeline)
        own[_TIMELINE] = f"{stem}.{incarnation}{extension}"
    return own


def _with_guard(path: str) -> str:
    """Returns a PYTHONPATH on which the guarded mpi4py (mpi_guard) is found first."""
    others = [word for word in path.split(os.pathsep) if word and word != _MPI_GUARD]
    return os.pathsep.join([_MPI_GUARD, *others])


def worker_environment(
    environ: Mapping[str, str], rank: int, nodes: Nodes, job: str, directory: str
) -> dict[str, str]:
    """Returns the environment of a worker, without the variables of its incarnation.

    Args:
        environ: of the agent, without the variables for MPI.
        rank: of the worker.
        nodes: of the job.
        job: id of the job.
        directory: of the job.
    """
    kept = {name: value for name, value in environ.items() if name not in _OF_AGENTS}
    node = nodes.node_of(rank)
    local = nodes.ranks(node)
    sizes = [len(nodes.ranks(other)) for other in range(len(nodes))]
    # Counted as in Horovod: the nodes that have this local rank.
    across = [other for other, size in enumerate(sizes) if size > local.index(rank)]
    return {
        **kept,
        "HOROVOD_CONTROLLER": "ft",
        "HOROVOD_CPU_OPERATIONS": "ft",
        "HOROVOD_RANK": str(rank),
        "HOROVOD_SIZE": str(nodes.bounds[-1]),
        "HOROVOD_LOCAL_RANK": str(local.index(rank)),
        "HOROVOD_LOCAL_SIZE": str(len(local)),
        "HOROVOD_CROSS_RANK": str(across.index(node)),
        "HOROVOD_CROSS_SIZE": str(len(across)),
        "HOROVOD_FT_HOMOGENEOUS": str(int(len(set(sizes)) == 1)),
        "HOROVOD_FT_NODE_SIZES": ",".join(map(str, sizes)),
        "HOROVOD_FT_DIR": directory,
        "HOROVOD_FT_JOB": job,
        "HOROVOD_FT_LIBRARY": libraries.library_path(),
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": _with_guard(environ.get("PYTHONPATH", "")),
    }
