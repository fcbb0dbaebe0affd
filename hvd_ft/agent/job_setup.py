"""The job's directory and arenas: made by its first agents, found by those of later generations."""

import contextlib
import os
import sys

from hvd_ft import native
from hvd_ft.agent.rendezvous import Rendezvous
from hvd_ft.job import mpi_files
from hvd_ft.job.directory import KEPT_NAME, JobDirectory, job_path, new_job_id, sweep_stale
from hvd_ft.job.placement import Nodes
from hvd_ft.job.processes import end_rank
from hvd_ft.job.settings import Settings
from hvd_ft.shim.client import ShimClient


def nodes_of(hosts: Nodes, settings: Settings) -> Nodes:
    """Returns the members of the ring: in the flat topology ranks of one host share no arena."""
    return hosts.apart() if settings.topology == "flat" else hosts


def find_files(
    rendezvous: Rendezvous,
    hosts: Nodes,
    settings: Settings,
    shim: ShimClient,
    stack: contextlib.ExitStack,
) -> tuple[str, str]:
    """As `make_files`, for what agents of an older generation have left."""
    job = settings.job or ""
    path = job_path(settings.arena_dir, job)

    def join() -> None:
        stack.callback(JobDirectory.join(path).leave)
        if not shim.found:
            shim.watch_job(path)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(path, KEPT_NAME))  # it is resumed
            # Its worker has died with the older shim; no process of that may be left.
            end_rank(job, rendezvous.rank)

    rendezvous.agree("the finding of the job's files", join)
    return job, _arenas(path, rendezvous, hosts, nodes_of(hosts, settings))


def make_files(
    rendezvous: Rendezvous,
    hosts: Nodes,
    settings: Settings,
    shim: ShimClient,
    stack: contextlib.ExitStack,
) -> tuple[str, str]:
    """Makes the job's directory and the arenas; returns the job's id and the arenas' directory."""

    def enter(directory: JobDirectory) -> None:
        stack.callback(directory.leave)
        shim.watch_job(directory.path)

    job = settings.job or new_job_id()
    job = rendezvous.exchange("rank 0 giving the job its id", job)[0]
    nodes = nodes_of(hosts, settings)
    neighbours = hosts.ranks(hosts.node_of(rendezvous.rank))
    node = nodes.node_of(rendezvous.rank)
    local = nodes.ranks(node)

    def make_directory() -> tuple[str, int] | None:
        if rendezvous.rank != neighbours.start:
            return None
        for dead in sweep_stale(settings.arena_dir):
            print(
                f"hvdft: removed what the crashed job {dead} had left in {settings.arena_dir}",
                file=sys.stderr,
                flush=True,
            )
        mpi_files.sweep()
        limit = settings.arena_limit_bytes()
        directory = JobDirectory.create(settings.arena_dir, job)
        enter(directory)
        return directory.path, limit * len(local) // len(neighbours)

    made = rendezvous.agree("the making of the job's directories", make_directory)
    path, limit = made[neighbours.start]
    arenas = _arenas(path, rendezvous, hosts, nodes)

    def make_arenas() -> None:
        if rendezvous.rank != neighbours.start:
            enter(JobDirectory.join(path))
        if rendezvous.rank == local.start:
            os.makedirs(arenas, 0o700, exist_ok=True)
            native.create_node(
                arenas, job, rendezvous.size, limit, nodes=len(nodes), node=node, local=local
            )
        native.create_rank(arenas, job, rendezvous.rank, limit)

    rendezvous.agree("the making of the arenas", make_arenas)
    return job, arenas


def _arenas(path: str, rendezvous: Rendezvous, hosts: Nodes, nodes: Nodes) -> str:
    """Returns where a node's arenas lie: of a host's first one in the job's directory itself."""
    first = nodes.firsts[nodes.node_of(rendezvous.rank)]
    return path if first in hosts.firsts else os.path.join(path, f"rank-{first}")
