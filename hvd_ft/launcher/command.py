"""`hvdft run`: its flags, and the run of the job that they describe."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
from typing import Any

from rich.console import Console

from hvd_ft.errors import HvdFtError
from hvd_ft.job.agent_flags import add_agent_flags, check_agent_flags
from hvd_ft.job.binding import BIND_TO, MAP_BY
from hvd_ft.job.ports import Ports
from hvd_ft.job.settings import TOPOLOGIES
from hvd_ft.launcher.autotune_flags import add_autotune
from hvd_ft.launcher.horovodrun_flags import INSTEAD
from hvd_ft.launcher.host_names import all_here, is_this_host
from hvd_ft.launcher.host_warning import warn_of_limits
from hvd_ft.launcher.job import ResolvedJob, resolve
from hvd_ft.launcher.job_flags import job_of, placed
from hvd_ft.launcher.resizing_flags import add_resizing, hosts_of, limits_of
from hvd_ft.launcher.status_page import PageAddress, status_page
from hvd_ft.members.hosts import machine_file
from hvd_ft.system.command_line import AddCommand, duration, whole
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
    run.elsewhere = INSTEAD
    run.add_argument(
        "-np",
        "--num-proc",
        type=whole(of="ranks"),
        metavar="N",
        help="number of ranks (default: the slots of a scheduler's allocation, "
        "docs/how-to/schedulers.md)",
    )
    run.add_argument(
        "-H",
        "--hosts",
        metavar="HOST:N,...",
        help="hosts and their slots, such as n0:4,n1:2 (default: those of a scheduler's "
        "allocation; outside of one all ranks run on this host)",
    )
    run.add_argument(
        "--spare-hosts",
        metavar="HOST:N,...",
        help="hosts that replace lost ones of -H, such as n3:4 (docs/how-to/spare-hosts.md)",
    )
    add_agent_flags(run)
    run.add_argument("--picture", metavar="FILE", help="draw each rank's state over time (PNG)")
    run.add_argument(
        "--topology",
        choices=TOPOLOGIES,
        help="members of the ring: hosts, whose ranks share memory (hierarchical, the default), or "
        "all ranks, with MPI between any two (flat)",
    )
    run.add_argument(
        "--tuning",
        metavar="FILE",
        help="settings of hvdft tune; off: take none (default: those of these hosts, if there are "
        "any, docs/how-to/tune.md)",
    )
    run.add_argument(
        "--bind-to",
        choices=BIND_TO,
        help="CPUs and memory of a rank: its even share of the host's CPUs (auto, the default), a "
        "core, its socket or NUMA node, or anywhere (docs/how-to/numa.md)",
    )
    run.add_argument(
        "--map-by",
        choices=MAP_BY,
        help="where a host's ranks stand: consecutive ones beside each other (slot, the default), "
        "or in turn on its NUMA nodes or sockets",
    )
    run.add_argument(
        "--network-interface",
        type=_interface,
        metavar="NIC",
        help="interface of every host, such as eth0, that the job uses: on which this command and "
        "mpirun listen, and over which MPI's tcp provider sends (docs/how-to/hosts.md#the-network)",
    )
    run.add_argument(
        "--ports",
        type=_ports,
        metavar="LOW-HIGH",
        help="listen only on these TCP ports, for firewalls, such as 40000-40099",
    )
    run.add_argument(
        "--checkpoint-dir",
        metavar="DIR",
        help="write checkpoints of the job to DIR in the background (docs/how-to/checkpoints.md)",
    )
    run.add_argument(
        "--checkpoint-interval",
        type=duration,
        metavar="TIME",
        help="from one checkpoint to the next, such as 90s, 10m (the default) or 2h",
    )
    run.add_argument(
        "--checkpoint-keep",
        type=whole(of="checkpoints"),
        metavar="N",
        help="keep the N newest checkpoints (default: 3)",
    )
    run.add_argument(
        "--grace",
        type=duration,
        metavar="SECONDS",
        help="on SIGTERM or SIGUSR1 write a checkpoint first; end with code 143, after SECONDS at "
        "the latest",
    )
    run.add_argument(
        "--resume",
        metavar="DIR|JOB",
        help="go on from the newest checkpoint in DIR, or from the checkpoint DIR; or resume a job "
        "that ended because of a lost host: give the same -np, -H and command",
    )
    add_resizing(run)
    add_autotune(run)
    run.add_argument(
        "--live",
        action=argparse.BooleanOptionalAction,
        help="show a live line per rank (default: if the output is a terminal)",
    )
    run.add_argument(
        "--status-port",
        type=_page_address,
        metavar="[ADDRESS:]PORT",
        help="serve a status page, /state.json and Prometheus's /metrics there, on loopback unless "
        "an address is given (docs/how-to/status-page.md)",
    )
    run.add_argument("--verbose", action="store_true", help="print how mpirun is started")
    run.set_defaults(handler=_run)


def _interface(text: str) -> str:
    if "," in text or not text:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not one interface; MPI's tcp provider takes only one"
        )
    return text


def _page_address(text: str) -> PageAddress:
    try:
        return PageAddress.parse(text)
    except ValueError:
        what = f"{text!r} is not [ADDRESS:]PORT, such as 8080 or 0.0.0.0:8080"
        raise argparse.ArgumentTypeError(what) from None


def _ports(text: str) -> str:
    if Ports.parse(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a range of ports, such as 40000-40099")
    return text


def _run(options: argparse.Namespace) -> int:
    from hvd_ft.launcher import run as launcher
    from hvd_ft.launcher.live_display import display
    from hvd_ft.launcher.resizing import launch_resizing

    check_agent_flags(options)
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
        if limits is not None:
            return launch_resizing(resolved, hosts_of(options, place.hosts), displays, page)
        with displays() as shown:
            code = launcher.launch(resolved, shown, page=page)
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
        save_states(picture, report.events)
    except NotWrittenError as error:
        say(f"the picture {error}")
        return code or EXIT_NOT_WRITTEN
    return code
