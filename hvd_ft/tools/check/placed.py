"""Where the workers and agents of a running job are on this node, and their memory."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from hvd_ft import native
from hvd_ft.system.process_placement import (
    Mapped,
    Thread,
    memory_of,
    policy_of,
    threads_of,
    total,
)

WORKER, AGENT = "worker", "agent"
LEADER_PREFIX = "hvdft-"  # of the names of a leader's threads (csrc/mpi/leader.cc)


@dataclass(frozen=True)
class Placed:
    """Where one process of a job is.

    Attributes:
        rank: the rank whose process it is.
        role: `WORKER` or `AGENT`.
        pid: its process id.
        threads: the first one is the main thread.
        policy: the policy of its own memory, in Linux's words.
        own: bytes of its own memory on each NUMA node.
        area: bytes of its rank's arena on each NUMA node: input area and snapshots.
        results: bytes of the node's arena that it has used, on each NUMA node.
        environ: its environment variables.
    """

    rank: int
    role: str
    pid: int
    threads: Sequence[Thread]
    policy: str
    own: Mapping[int, int]
    area: Mapping[int, int]
    results: Mapping[int, int]
    environ: Mapping[str, str]

    @property
    def cpus(self) -> frozenset[int]:
        """The CPUs that any of its threads may use."""
        return frozenset[int]().union(*(thread.cpus for thread in self.threads))

    @property
    def leader_threads(self) -> list[Thread]:
        """The threads that speak MPI for their node."""
        return [thread for thread in self.threads if thread.name.startswith(LEADER_PREFIX)]


def look(directory: str) -> list[Placed]:
    """Looks at a job's processes on this node, worker and agent of one rank after the other.

    Args:
        directory: the job's directory.

    Raises:
        HvdFtError: it is not the directory of a job.
    """
    workers: dict[int, int] = {}
    # In the flat topology each rank has arenas of its own, below.
    for arena in [Path(directory, "node.arena"), *Path(directory).glob("rank-*/node.arena")]:
        observer = native.Observer(str(arena.parent))
        try:
            workers |= {observer.status(rank).pid: rank for rank in range(observer.size)}
        finally:
            observer.close()
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            maps = Path(f"/proc/{process.pid}/maps").read_text(errors="surrogateescape")
            if f" {directory}/" not in maps:
                continue
            environ = process.environ()
            if process.pid in workers:
                found.append(placed(directory, workers[process.pid], WORKER, process.pid, environ))
            elif environ.get("PMI_RANK", "").isdecimal():
                rank = int(environ["PMI_RANK"])
                found.append(placed(directory, rank, AGENT, process.pid, environ))
    return sorted(found, key=lambda place: (place.rank, place.role != WORKER))


def placed(directory: str, rank: int, role: str, pid: int, environ: Mapping[str, str]) -> Placed:
    """Looks at one process.

    Args:
        directory: the directory of its job.
        rank: the rank whose process it is.
        role: `WORKER` or `AGENT`.
        pid: its process id.
        environ: its environment variables.
    """
    memory = memory_of(pid)

    def lying_in(name: str) -> list[Mapped]:
        return [
            part
            for part in memory
            if part.file.startswith(f"{directory}/") and Path(part.file).name == name
        ]

    return Placed(
        rank=rank,
        role=role,
        pid=pid,
        threads=threads_of(pid),
        policy=policy_of(memory),
        own=total(part for part in memory if not part.file),
        area=total(lying_in(f"rank-{rank}.arena")),
        results=total(lying_in("node.arena")),
        environ=environ,
    )
