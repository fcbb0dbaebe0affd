"""Makes the job's directory and arenas in the first generation; finds them in later ones."""

import contextlib
import glob
import os
import shutil
from collections.abc import Sequence
from typing import Any

from hvd_ft import native
from hvd_ft.agent.job_context import JobContext
from hvd_ft.agent.node_rejoin import rejoin
from hvd_ft.agent.rendezvous import Rendezvous
from hvd_ft.errors import HvdFtError
from hvd_ft.job.arena_limit import arena_limit_bytes
from hvd_ft.job.directory import KEPT_NAME, JobDirectory, job_path, new_job_id, sweep_stale
from hvd_ft.job.launch import Launch
from hvd_ft.job.leftovers import clear_leftovers
from hvd_ft.job.member_file import is_current, write_members
from hvd_ft.job.placement import Nodes
from hvd_ft.job.processes import end_older, end_rank
from hvd_ft.job.settings import Settings
from hvd_ft.mpi import leftover_files
from hvd_ft.shim.client import ShimClient
from hvd_ft.system.say import say


def find_files(
    rendezvous: Rendezvous,
    hosts: Nodes,
    settings: Settings,
    launch: Launch,
    *,
    shim: ShimClient,
    stack: contextlib.ExitStack,
) -> JobContext:
    """Finds the files that agents of an earlier generation have left; otherwise like `make_files`.

    A host without files of its place in the job, such as a spare host that has just taken the
    place, makes them anew, and copies their contents from the other hosts.
    """
    job = launch.job or ""
    path = job_path(settings.arena_dir, job)
    context = JobContext(rendezvous.rank, settings, hosts, job, path, launch)
    present = rendezvous.agree("looking for the job's files", lambda: _has_files(context))
    fresh_hosts = [host for host in range(len(hosts)) if not all(_of(hosts, host, present))]
    if len(fresh_hosts) == len(hosts):
        raise HvdFtError(f"the job of {path} is gone on all of its hosts: start it again")
    if fresh_hosts:
        _make_fresh(rendezvous, context, fresh_hosts, shim, stack)
    else:
        _join_all(rendezvous, context, shim, stack)
    firsts = context.nodes.firsts
    fresh = [node for node, rank in enumerate(firsts) if hosts.node_of(rank) in fresh_hosts]
    rejoin(rendezvous, context, fresh)
    note_complete(rendezvous, context)
    return context


def note_complete(rendezvous: Rendezvous, context: JobContext) -> None:
    """Records on every host that its files belong to this generation's membership. Collective."""
    members, first = context.launch.members, rendezvous.rank in context.hosts.firsts

    def note() -> None:
        if first and members is not None:
            write_members(context.directory, members)

    rendezvous.agree("noting that the job's files are complete", note)


def _has_files(context: JobContext) -> bool:
    members = context.launch.members
    if members is None or members.size <= context.rank:  # the job has never had another host here
        return os.path.isdir(context.directory)
    return is_current(context.directory, members, context.rank)


def _of(hosts: Nodes, host: int, values: Sequence[Any]) -> list[Any]:
    """Returns the values of a host's ranks."""
    return [values[rank] for rank in hosts.ranks(host)]


def _join_all(
    rendezvous: Rendezvous, context: JobContext, shim: ShimClient, stack: contextlib.ExitStack
) -> None:
    rendezvous.agree("finding the job's files", lambda: _join(context, shim, stack))


def _join(context: JobContext, shim: ShimClient, stack: contextlib.ExitStack) -> None:
    stack.callback(JobDirectory.join(context.directory).leave)
    if not shim.found:
        shim.watch_job(context.directory)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(context.directory, KEPT_NAME))  # it is resumed
        # Its worker has died with the older shim; none of the worker's processes may be left.
        end_rank(context.job, context.rank)


def _make_fresh(
    rendezvous: Rendezvous,
    context: JobContext,
    fresh_hosts: Sequence[int],
    shim: ShimClient,
    stack: contextlib.ExitStack,
) -> None:
    """Makes directory and arenas on the new hosts; the others join theirs. Collective."""
    hosts, rank = context.hosts, context.rank
    fresh = hosts.node_of(rank) in fresh_hosts

    def clear_old() -> None:
        if fresh and context.is_guest:
            if rank in hosts.firsts:  # from an earlier stay
                shutil.rmtree(context.arenas, ignore_errors=True)
        elif fresh and rank in hosts.firsts:
            end_older(context.job, context.launch.generation)
            sweep_stale(context.settings.arena_dir, only=context.job)
        elif rank in hosts.firsts and not context.is_guest:
            _clear_former_guests(context)

    def find_or_make_directory() -> int:
        if not fresh or context.is_guest:
            _join(context, shim, stack)
            return arena_limit_bytes(context.settings) if fresh else 0
        return _make_directory(context, shim, stack) if rank in hosts.firsts else 0

    rendezvous.agree("clearing files of an older epoch from hosts", clear_old)
    made = rendezvous.agree("making the directories of new hosts", find_or_make_directory)
    limit = made[hosts.ranks(hosts.node_of(rank)).start]
    # The op log may have segments that a window by the setting, if it is another one now, is too
    # small for.
    windows = rendezvous.agree(
        "finding how far ranks may be ahead", lambda: 0 if fresh else _window(context)
    )

    def make_arenas() -> None:
        if fresh:
            if rank not in hosts.firsts and not context.is_guest:
                _enter(JobDirectory.join(context.directory), shim, stack)
            make_rank_arenas(context, rendezvous.size, limit, max(windows))

    rendezvous.agree("making the arenas of new hosts", make_arenas)


def _window(context: JobContext) -> int:
    """Returns the bytes of the input areas on this node."""
    observer = native.Observer(context.arenas)
    try:
        return observer.window_bytes
    finally:
        observer.close()


def _clear_former_guests(context: JobContext) -> None:
    """Removes the arenas of guests that are elsewhere now, because they take memory."""
    members = context.launch.members
    if members is None or members.size <= context.rank:
        return
    own = members.places[members.place_of(context.rank)].host
    for path in glob.glob(os.path.join(context.directory, "rank-*", "")):
        first = os.path.basename(path.rstrip("/")).removeprefix("rank-")
        if first.isdecimal() and members.places[members.place_of(int(first))].host != own:
            shutil.rmtree(path, ignore_errors=True)


def make_files(
    rendezvous: Rendezvous,
    hosts: Nodes,
    settings: Settings,
    launch: Launch,
    *,
    shim: ShimClient,
    stack: contextlib.ExitStack,
) -> JobContext:
    """Makes the job's directory and the arenas. Collective.

    Args:
        rendezvous: of all agents.
        hosts: the ranks of each host.
        settings: the user's.
        launch: what the launcher has said.
        shim: cleans up when this agent cannot.
        stack: releases the files at the end of the job.

    Returns:
        This agent's place in the job.
    """

    job = launch.job or new_job_id()
    what = "rank 0's choice of the job's id and window"
    job, window = rendezvous.exchange(what, [job, settings.node_window_bytes])[0]
    path = job_path(settings.arena_dir, job)
    context = JobContext(rendezvous.rank, settings, hosts, job, path, launch)
    first = hosts.ranks(hosts.node_of(rendezvous.rank)).start

    def make_directory() -> int:
        return _make_directory(context, shim, stack) if rendezvous.rank == first else 0

    limit = rendezvous.agree("making the job's directories", make_directory)[first]

    def make_arenas() -> None:
        if rendezvous.rank != first:
            _enter(JobDirectory.join(path), shim, stack)
        make_rank_arenas(context, rendezvous.size, limit, window)

    rendezvous.agree("making the arenas", make_arenas)
    note_complete(rendezvous, context)
    return context


def _enter(directory: JobDirectory, shim: ShimClient, stack: contextlib.ExitStack) -> None:
    stack.callback(directory.leave)
    shim.watch_job(directory.path)


def _make_directory(context: JobContext, shim: ShimClient, stack: contextlib.ExitStack) -> int:
    """Makes the job's directory on this host; returns the limit of its arenas, in bytes."""
    settings = context.settings
    # The launcher is mostly on rank 0's host, and has named them.
    names_kept = bool(context.rank) or not context.launch.launcher
    clear_leftovers(settings.arena_dir, names_kept=names_kept)
    leftover_files.sweep()
    limit = arena_limit_bytes(settings)
    _enter(JobDirectory.create(settings.arena_dir, context.job), shim, stack)
    return limit


def make_rank_arenas(context: JobContext, size: int, host_limit: int, window: int) -> None:
    """Makes this rank's arena, and as the node's first rank the node's.

    Args:
        context: this agent's place in the job.
        size: number of ranks of the job.
        host_limit: limit of the arenas on this host, in bytes.
        window: size of each rank's input area, in bytes.
    """
    nodes, rank, arenas = context.nodes, context.rank, context.arenas
    node = nodes.node_of(rank)
    local = nodes.ranks(node)
    host = context.hosts.ranks(context.hosts.node_of(rank))
    limit = host_limit * len(local) // len(host)
    if rank == local.start:
        os.makedirs(arenas, 0o700, exist_ok=True)
        # Every rank reads every result, so no node is nearer to all of them than another one.
        with native.files_on(context.memory_of(local)) as problem:
            native.create_node(
                *(arenas, context.job, size, limit),
                window_bytes=window,
                nodes=len(nodes),
                node=node,
                local=local,
            )
        if problem and rank == host.start:
            say(problem)
    with native.files_on(context.place.memory):
        native.create_rank(arenas, context.job, rank, limit, window_bytes=window)
