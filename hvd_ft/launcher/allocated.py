"""Where `hvdft run` runs a job; inside a scheduler's allocation it needs neither -np nor -H."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hvd_ft.errors import HvdFtError
from hvd_ft.launcher.host_names import is_this_host
from hvd_ft.members.hosts import host_list
from hvd_ft.mpi.variables import bootstrap, bootstrap_of
from hvd_ft.schedulers.allocation import Allocation, read_allocation


@dataclass(frozen=True)
class Place:
    """Where a job runs.

    Attributes:
        size: number of ranks.
        hosts: in the form of -H; None: all ranks run on this host, or a script names the hosts.
        bootstrap: how Hydra starts processes there; None: as it does by default, by ssh.
        why: a line that names the allocation; "" if there is none.
    """

    size: int
    hosts: str | None
    bootstrap: str | None = None
    why: str = ""


def find_allocation(environ: Mapping[str, str]) -> Allocation | None:
    """Returns the allocation in which this process runs; None if it runs in none.

    Raises:
        HvdFtError: the allocation cannot be read.
    """
    path = environ.get("PATH")
    return read_allocation(
        environ,
        lambda name: Path(name).read_text(),
        lambda program: shutil.which(program, path=path) is not None,
    )


def place_of(
    size: int | None, hosts: str | None, *, by_script: bool, resizes: bool = False
) -> Place:
    """Determines where a job runs from what the user and the scheduler say.

    Args:
        size: -np, if it is given.
        hosts: -H, if it is given.
        by_script: whether a script names the hosts.
        resizes: whether the job may use hosts of the allocation that have no rank at first.

    Raises:
        HvdFtError: the user says too little and there is no scheduler, or the two contradict each
            other.
    """
    try:
        allocation = find_allocation(os.environ)
    except HvdFtError:
        if size is None or (hosts is None and not by_script):
            raise
        allocation = None  # it is not needed
    if size is None and (allocation is None or hosts is not None or by_script):
        raise HvdFtError(
            "-np is missing: give the number of ranks, such as -np 4 (inside a scheduler's "
            "allocation, and without -H, it is not needed)"
        )
    if allocation is None or by_script:
        assert size is not None
        return Place(size, hosts)
    size = size or allocation.slots
    if hosts is not None:
        ours = {host.name for host in allocation.hosts}
        named = {entry.partition(":")[0] for entry in hosts.split(",")}
        return Place(size, hosts, allocation.bootstrap if named <= ours else None)
    first = allocation.first(size)
    why = f"{allocation.scheduler} job {allocation.job}" if allocation.job else allocation.scheduler
    known = allocation.hosts if resizes else first
    if len(known) == 1 and is_this_host(known[0].name):
        return Place(size, None, why=f"{why}: {size} ranks on this host")
    text = host_list(first)
    return Place(
        size,
        host_list(known),
        allocation.bootstrap,
        f"{why}: {size} ranks on {text}, started by {_by(allocation)}",
    )


def _by(allocation: Allocation) -> str:
    return bootstrap_of({**bootstrap(allocation.bootstrap), **os.environ})
