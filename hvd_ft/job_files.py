"""The job's directory and arenas: made by its first agents, found by those of later generations."""

import contextlib
import os
import sys

from hvd_ft import jobdir, mpi_files, native
from hvd_ft.job_processes import end_rank
from hvd_ft.meeting import Meeting
from hvd_ft.nodes import Nodes
from hvd_ft.nursery import NurseryProcess
from hvd_ft.settings import Settings


def nodes_of(hosts: Nodes, settings: Settings) -> Nodes:
    """Returns the members of the ring: in the flat topology ranks of one host share no arena."""
    return hosts.apart() if settings.topology == "flat" else hosts


def find_files(
    meeting: Meeting,
    hosts: Nodes,
    settings: Settings,
    nursery: NurseryProcess,
    stack: contextlib.ExitStack,
) -> tuple[str, str]:
    """As `make_files`, for what agents of an older generation have left."""
    job = settings.job or ""
    path = jobdir.job_path(settings.arena_dir, job)

    def join() -> None:
        stack.callback(jobdir.JobDirectory.join(path).leave)
        if not nursery.found:
            nursery.watch_job(path)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(path, jobdir.KEPT_NAME))  # it is resumed
            # Its worker has died with the older nursery; no process of that may be left.
            end_rank(job, meeting.rank)

    meeting.agree("the finding of the job's files", join)
    return job, _arenas(path, meeting, hosts, nodes_of(hosts, settings))


def make_files(
    meeting: Meeting,
    hosts: Nodes,
    settings: Settings,
    nursery: NurseryProcess,
    stack: contextlib.ExitStack,
) -> tuple[str, str]:
    """Makes the job's directory and the arenas; returns the job's id and the arenas' directory."""

    def enter(directory: jobdir.JobDirectory) -> None:
        stack.callback(directory.leave)
        nursery.watch_job(directory.path)

    job = settings.job or jobdir.new_job_id()
    job = meeting.exchange("rank 0 giving the job its id", job)[0]
    nodes = nodes_of(hosts, settings)
    neighbours = hosts.ranks(hosts.node_of(meeting.rank))
    node = nodes.node_of(meeting.rank)
    local = nodes.ranks(node)

    def make_directory() -> tuple[str, int] | None:
        if meeting.rank != neighbours.start:
            return None
        for dead in jobdir.sweep_stale(settings.arena_dir):
            print(
                f"hvdft: removed what the crashed job {dead} had left in {settings.arena_dir}",
                file=sys.stderr,
                flush=True,
            )
        mpi_files.sweep()
        limit = settings.arena_limit_bytes()
        directory = jobdir.JobDirectory.create(settings.arena_dir, job)
        enter(directory)
        return directory.path, limit * len(local) // len(neighbours)

    made = meeting.agree("the making of the job's directories", make_directory)
    path, limit = made[neighbours.start]
    arenas = _arenas(path, meeting, hosts, nodes)

    def make_arenas() -> None:
        if meeting.rank != neighbours.start:
            enter(jobdir.JobDirectory.join(path))
        if meeting.rank == local.start:
            os.makedirs(arenas, 0o700, exist_ok=True)
            native.create_node(
                arenas, job, meeting.size, limit, nodes=len(nodes), node=node, local=local
            )
        native.create_rank(arenas, job, meeting.rank, limit)

    meeting.agree("the making of the arenas", make_arenas)
    return job, arenas


def _arenas(path: str, meeting: Meeting, hosts: Nodes, nodes: Nodes) -> str:
    """Returns where a node's arenas lie: of a host's first one in the job's directory itself."""
    first = nodes.firsts[nodes.node_of(meeting.rank)]
    return path if first in hosts.firsts else os.path.join(path, f"rank-{first}")
