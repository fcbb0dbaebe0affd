"""Makes the job that the flags of `hvdft run` describe."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hvd_ft.errors import HvdFtError
from hvd_ft.job.ring_order import host_order
from hvd_ft.launcher.allocated import place_of
from hvd_ft.launcher.autotune_flags import autotune_environment
from hvd_ft.launcher.horovodrun_flags import horovodrun_environment, mpi_arguments
from hvd_ft.launcher.host_names import check_known
from hvd_ft.launcher.job import Job
from hvd_ft.launcher.run_flags import (
    binding_environment,
    network_environment,
    output_environment,
)
from hvd_ft.launcher.spare_hosts import parse_spare_hosts
from hvd_ft.launcher.tuning import Found, find
from hvd_ft.members.hosts import Host, parse_hosts
from hvd_ft.members.resizing_rule import Limits
from hvd_ft.mpi.variables import bootstrap


@dataclass(frozen=True)
class Placed:
    """Where a job is to run.

    Attributes:
        size: Number of ranks.
        hosts: In the order of their ranks; none: all ranks are on this host.
        spare_hosts: As in `Job`.
        bootstrap: As in `Job`.
        tuned: Settings that hvdft tune has found for these hosts, by environment variable.
        lines: What the user is told about this choice.
    """

    size: int
    hosts: Sequence[Host]
    spare_hosts: Sequence[Host]
    bootstrap: str | None
    tuned: Mapping[str, str]
    lines: Sequence[str]


def placed(options: argparse.Namespace, *, resizes: bool) -> Placed:
    """Finds the hosts on which the job of these flags is to run, and the settings tuned for them.

    Args:
        options: The parsed command line.
        resizes: Whether the job may change its number of ranks.

    Raises:
        HvdFtError: The flags name no usable hosts.
    """
    place = place_of(
        options.num_proc,
        options.hosts,
        by_script=options.host_discovery_script is not None,
        resizes=resizes,
    )
    hosts, reordered = _hosts(place.hosts, place.size)
    environ = {**bootstrap(place.bootstrap), **os.environ}
    check_known(hosts, environ)
    tuned = _tuned(options, hosts, place.size)
    spare_hosts: Sequence[Host] = ()
    if options.spare_hosts is not None:
        spare_hosts = parse_spare_hosts(options.spare_hosts, hosts, place.size, environ)
    lines = [line for line in (tuned.line, place.why, reordered) if line]
    return Placed(place.size, hosts, spare_hosts, place.bootstrap, tuned.settings, lines)


def job_of(
    options: argparse.Namespace,
    place: Placed,
    limits: Limits | None,
    *,
    report: str | None,
    machine_file: str | None,
) -> Job:
    """Returns the job of these flags.

    Args:
        options: The parsed command line.
        place: Where the job is to run.
        limits: As in `Job`.
        report: As in `Job`.
        machine_file: As in `Job`.

    Raises:
        HvdFtError: The flags describe no job.
    """
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise HvdFtError("no command given; give it last, as in: hvdft run -np 4 python train.py")
    checkpoints, earlier = _resumed(options)
    autotune = autotune_environment(options, os.environ)
    return Job(
        place.size,
        command,
        options.on_failure,
        options.on_restart,
        report,
        options.inject,
        options.spares,
        machine_file,
        place.hosts,
        options.topology,
        spare_hosts=place.spare_hosts,
        limits=limits,
        bootstrap=place.bootstrap,
        verbose=options.verbose,
        trace_ops=options.trace_ops,
        given={
            **place.tuned,
            **checkpoints,
            **network_environment(options),
            **binding_environment(options),
            **autotune,
            **horovodrun_environment(options),
            **output_environment(options, os.environ),
        },
        mpi_args=mpi_arguments(options),
        **earlier,
    )


def _hosts(text: str | None, size: int) -> tuple[tuple[Host, ...], str]:
    """Returns the hosts of -H in the order of their ranks, and a line about this order."""
    return ((), "") if text is None else host_order(parse_hosts(text, size), size)


def _tuned(options: argparse.Namespace, hosts: Sequence[Host], size: int) -> Found:
    """Returns the settings that hvdft tune has found for these hosts; the user's settings win."""
    if options.host_discovery_script is not None:
        return Found()  # the hosts are not known yet
    by_flags = {**network_environment(options), **binding_environment(options)}
    if options.topology:
        by_flags["HOROVOD_FT_TOPOLOGY"] = options.topology
    return find(options.tuning, hosts, size, {**os.environ, **by_flags})


def _resumed(options: argparse.Namespace) -> tuple[dict[str, str], dict[str, Any]]:
    """Returns the settings of the checkpoint flags, and the fields of an earlier job."""
    from hvd_ft.job.settings import Settings
    from hvd_ft.launcher.checkpoints import resumes_job

    given = {
        "CHECKPOINT_DIR": options.checkpoint_dir and os.path.abspath(options.checkpoint_dir),
        "CHECKPOINT_INTERVAL_SECONDS": options.checkpoint_interval,
        "CHECKPOINT_KEEP": options.checkpoint_keep,
        "GRACE_SECONDS": options.grace,
    }
    directory = options.checkpoint_dir or os.environ.get("HOROVOD_FT_CHECKPOINT_DIR")
    for name in ("checkpoint_interval", "checkpoint_keep"):
        if getattr(options, name) is not None and not directory:
            raise HvdFtError(
                f"--{name.replace('_', '-')} belongs to --checkpoint-dir, and no checkpoints are "
                "written without it; give both or none"
            )
    earlier: dict[str, Any] = {}
    if options.resume is not None:
        # Alone: the other settings may wait for what this flag gives.
        where = (Settings.alone(os.environ, name) for name in ("arena_dir", "shared_dir"))
        if resumes_job(options.resume, *where):
            earlier = {"id": options.resume, "resume": True}
        else:
            given["RESUME_DIR"] = os.path.abspath(options.resume)
    return {f"HOROVOD_FT_{name}": str(value) for name, value in given.items() if value}, earlier
