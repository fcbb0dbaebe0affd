"""`hvdft run`: its flags, and the run of the job that they describe."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
from typing import Any

from rich.console import Console

from hvd_ft.errors import HvdFtError
from hvd_ft.job.agent_flags import check_agent_flags
from hvd_ft.launcher.host_file import read_host_file
from hvd_ft.launcher.host_names import all_here, is_this_host
from hvd_ft.launcher.host_warning import warn_of_limits
from hvd_ft.launcher.job import ResolvedJob, resolve
from hvd_ft.launcher.job_flags import job_of, placed
from hvd_ft.launcher.outcome import Outcome
from hvd_ft.launcher.resizing_flags import hosts_of, limits_of
from hvd_ft.launcher.run_flags import add_flags
from hvd_ft.launcher.status_page import status_page
from hvd_ft.members.hosts import machine_file
from hvd_ft.system.command_line import AddCommand
from hvd_ft.system.memory_file import memory_file
from hvd_ft.system.say import say
from hvd_ft.system.writable import (
    EXIT_NOT_WRITTEN,
    NotWrittenError,
    check_directory,
    check_writable,
)


def add_run(commands: Any, add: AddCommand) -> None:
    """Adds `run` to the command line.

    Args:
        commands: the parsers to which this one is added.
        add: makes a command's parser from its place, name, help and example.
    """
    run = add(
        commands,
        "run",
        "run a training command on every rank, restarting ranks that die",
        "hvdft run -np 4 --picture states.png python train.py --epochs 3",
    )
    add_flags(run)
    run.set_defaults(handler=_run)


def _run(options: argparse.Namespace) -> int:
    from hvd_ft.launcher import run as launcher
    from hvd_ft.launcher.live_display import display
    from hvd_ft.launcher.resizing import launch_resizing

    check_agent_flags(options)
    for line in options.without_effect:
        say(line)
    if options.hostfile is not None:
        options.hosts = read_host_file(options.hostfile)
    limits = limits_of(options)
    place = placed(options, resizes=limits is not None)
    console = Console()
    live = console.is_terminal if options.live is None else options.live
    with contextlib.ExitStack() as stack:
        report = options.report
        if options.picture and not report:
            report = stack.enter_context(memory_file())
        machines = None
        if place.spare_hosts or not all_here(place.hosts):
            machines = stack.enter_context(memory_file(machine_file(place.hosts)))
        resolved = resolve(job_of(options, place, limits, report=report, machine_file=machines))
        _check_outputs(options, resolved)
        for line in place.lines:
            say(line)
        warn_of_limits(resolved)
        displays = functools.partial(display, console if live else Console(stderr=True), live)
        page = None
        if options.status_port is not None:
            page = stack.enter_context(status_page(options.status_port))
        outcome = Outcome()
        if limits is not None:
            hosts = hosts_of(options, place.hosts)
            code = launch_resizing(resolved, hosts, displays, page, outcome)
        else:
            with displays() as shown:
                code = launcher.launch(resolved, shown, page=page, outcome=outcome)
        if line := outcome.line(code):
            say(line)
        if options.picture:
            code = _draw_job(report, options.picture, resolved.job.id, code)
    return code


def _check_outputs(options: argparse.Namespace, resolved: ResolvedJob) -> None:
    """Checks that results can be written; rank 0's host writes the report and autotuning's log.

    Checkpoints are written on all hosts; on other hosts the agents check their directories.
    """
    hosts, directory = resolved.job.hosts, resolved.settings.checkpoint_dir
    check_writable(options.picture)
    if directory and (not hosts or any(is_this_host(host.name) for host in hosts)):
        check_directory(directory)
    if not hosts or is_this_host(hosts[0].name):
        check_writable(options.report, options.autotune_log_file)
        if options.picture and options.report and not _may_be_file(options.report):
            raise HvdFtError(
                f"--picture is drawn from the report, and {options.report} is not a file that can "
                "be read again; leave --report out or give a file"
            )
    elif options.picture and not options.report:
        raise HvdFtError(
            f"--picture is drawn from the report, which rank 0 writes on {hosts[0].name}; "
            "give --report a file in a directory that both hosts share, or name this host first"
        )


def _may_be_file(path: str) -> bool:
    return os.path.isfile(path) or not os.path.exists(path)


def _draw_job(path: str, picture: str, job: str, code: int) -> int:
    """Draws the picture of a job that has ended with `code`; returns the command's exit code."""
    from hvd_ft.reports.plot import save_states
    from hvd_ft.reports.report import read_report

    try:
        report = read_report(path)
        if report.facts["job"] != job:
            raise HvdFtError(f"{path} is not this job's report; check that rank 0's host shares it")
    except HvdFtError as error:
        if code:
            return code  # it failed before there was anything to draw
        say(f"there is no picture: {error}")
        return EXIT_NOT_WRITTEN
    try:
        save_states(picture, report.events, facts=report.facts)
    except NotWrittenError as error:
        say(f"the picture {error}")
        return code or EXIT_NOT_WRITTEN
    return code
