"""The processes of a job that a soak strikes, found by a mark in their environment."""

import contextlib
import os
import random

import psutil

MARK = "HVD_FT_SOAK"


def processes_of(mark: str) -> dict[str, list[psutil.Process]]:
    """Returns the processes of the job with this mark, by what they are."""
    found: dict[str, list[psutil.Process]] = {
        kind: [] for kind in ("agent", "shim", "worker", "mpirun", "proxy", "other")
    }
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            env = process.environ()
            if env.get(MARK) != mark or process.status() == psutil.STATUS_ZOMBIE:
                continue
            found[_kind(process, env)].append(process)
    return found


def _kind(process: psutil.Process, env: dict[str, str]) -> str:
    if "HOROVOD_RANK" in env:
        return "worker"
    if process.name() == "mpiexec.hydra":
        return "mpirun"
    if process.name() == "hydra_pmi_proxy":
        return "proxy"
    if "PMI_RANK" not in env:
        return "other"
    # A shim, whose command line is the same, has a session of its own.
    return "shim" if os.getsid(process.pid) == process.pid else "agent"


def strike(kinds: list[str], mark: str, chance: random.Random) -> bool:
    """Kills one process of each of these kinds; False if there is none of some kind now."""
    found = processes_of(mark)
    if not all(found[kind] for kind in kinds):
        return False
    for kind in kinds:
        with contextlib.suppress(psutil.Error):
            chance.choice(found[kind]).kill()
    return True
