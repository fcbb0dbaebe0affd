"""Makes the job's directory and arenas in the first generation; finds them in later ones."""

import contextlib
import os

from hvd_ft import native
from hvd_ft.agent.job_context import JobContext
from hvd_ft.agent.rendezvous import Rendezvous
from hvd_ft.job import mpi_files
from hvd_ft.job.directory import KEPT_NAME, JobDirectory, job_path, new_job_id, sweep_stale
from hvd_ft.job.placement import Nodes
from hvd_ft.job.processes import end_rank
from hvd_ft.job.settings import Settings
from hvd_ft.shim.client import ShimClient
from hvd_ft.system.say import say


def find_files(
    rendezvous: Rendezvous,
    hosts: Nodes,
    settings: Settings,
    shim: ShimClient,
    stack: contextlib.ExitStack,
) -> JobContext:
    """As `make_files`, for what agents of an older generation have left."""
    job = settings.job or ""
    path = job_path(settings.arena_dir, job)

    def join() -> None:
        stack.callback(JobDirectory.join(path).leave)
        if not shim.found:
            shim.watch_job(path)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(path, KEPT_NAME))  # it is resumed
            # Its worker has died with the older shim; none of the worker's processes may be left.
            end_rank(job, rendezvous.rank)

    rendezvous.agree("finding the job's files", join)
    return JobContext(rendezvous.rank, settings, hosts, job, path)


def make_files(
    rendezvous: Rendezvous,
    hosts: Nodes,
    settings: Settings,
    shim: ShimClient,
    stack: contextlib.ExitStack,
) -> JobContext:
    """Makes the job's directory and the arenas. Collective.

    Args:
        rendezvous: of all agents.
        hosts: the ranks of each host.
        settings: the user's.
        shim: cleans up when this agent cannot.
        stack: releases the files at the end of the job.

    Returns:
        This agent's place in the job.
    """

    def enter(directory: JobDirectory) -> None:
        stack.callback(directory.leave)
        shim.watch_job(directory.path)

    job = settings.job or new_job_id()
    job = rendezvous.exchange("rank 0's choice of the job's id", job)[0]
    neighbours = hosts.ranks(hosts.node_of(rendezvous.rank))

    def make_directory() -> tuple[str, int] | None:
        if rendezvous.rank != neighbours.start:
            return None
        for dead in sweep_stale(settings.arena_dir):
            say(f"removed what the crashed job {dead} had left in {settings.arena_dir}")
        mpi_files.sweep()
        limit = settings.arena_limit_bytes()
        directory = JobDirectory.create(settings.arena_dir, job)
        enter(directory)
        return directory.path, limit

    made = rendezvous.agree("making the job's directories", make_directory)
    path, host_limit = made[neighbours.start]
    context = JobContext(rendezvous.rank, settings, hosts, job, path)

    def make_arenas() -> None:
        if rendezvous.rank != neighbours.start:
            enter(JobDirectory.join(path))
        _make_arenas(context, rendezvous.size, host_limit)

    rendezvous.agree("making the arenas", make_arenas)
    return context


def _make_arenas(context: JobContext, size: int, host_limit: int) -> None:
    """Makes this rank's arena, and as the node's first rank the node's."""
    nodes, rank, arenas = context.nodes, context.rank, context.arenas
    node = nodes.node_of(rank)
    local = nodes.ranks(node)
    host = context.hosts.ranks(context.hosts.node_of(rank))
    limit = host_limit * len(local) // len(host)
    if rank == local.start:
        os.makedirs(arenas, 0o700, exist_ok=True)
        native.create_node(
            arenas, context.job, size, limit, nodes=len(nodes), node=node, local=local
        )
    native.create_rank(arenas, context.job, rank, limit)
