"""The flags of `hvdft run` for jobs that change their number of ranks, as in horovodrun."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from hvd_ft.errors import HvdFtError
from hvd_ft.launcher.discovery import Discovery
from hvd_ft.launcher.resizing import Hosts, NamedHosts
from hvd_ft.members.hosts import Host
from hvd_ft.members.resizing_rule import TIMEOUT_SECONDS, Limits
from hvd_ft.system.command_line import duration, whole


def add_resizing(group: Any) -> None:
    """Adds the flags (docs/how-to/resize.md).

    Args:
        group: the group of the parser that gets them.
    """
    group.add_argument(
        "--min-np",
        "--min-num-proc",
        type=whole(of="ranks"),
        metavar="N",
        help="continue without lost hosts while there are N slots (default: -np; "
        "docs/how-to/resize.md)",
    )
    group.add_argument(
        "--max-np",
        "--max-num-proc",
        type=whole(of="ranks"),
        metavar="N",
        help="add hosts up to N ranks (default: -np with -H; with a script no limit)",
    )
    group.add_argument(
        "--in-place",
        action="store_true",
        help="when a host is lost, the others keep their processes instead of starting again from "
        "a checkpoint; the script has to divide its data anew, by an ElasticSampler or in a reset "
        "callback",
    )
    group.add_argument(
        "--elastic-timeout",
        type=duration,
        metavar="SECONDS",
        help=f"how long the job waits while there are too few slots (default: {TIMEOUT_SECONDS:g})",
    )
    group.add_argument(
        "--host-discovery-script",
        metavar="CMD",
        help="a command that prints the hosts, HOST or HOST:N per line; run once a second",
    )
    group.add_argument(
        "--slots-per-host",
        type=whole(of="slots"),
        metavar="N",
        help="slots of hosts that the script prints without a number (default: 1)",
    )
    group.add_argument(
        "--blacklist-cooldown-range",
        type=duration,
        nargs=2,
        metavar=("LOW", "HIGH"),
        help="use a lost host again after 2 to 3 times LOW seconds, twice as long after each loss, "
        "HIGH at most (default: never)",
    )


def limits_of(options: argparse.Namespace) -> Limits | None:
    """Returns the limits of the job's number of ranks; None if the number is fixed.

    Raises:
        HvdFtError: Flags contradict each other, or need others that are not given.
    """
    script = options.host_discovery_script is not None
    if options.min_np is not None or script:
        if script and options.hosts is not None:
            raise HvdFtError("-H and --host-discovery-script both name the hosts; give one of them")
        if options.slots_per_host is not None and not script:
            raise HvdFtError(
                "--slots-per-host belongs to --host-discovery-script; give both or none"
            )
        if options.picture:
            raise HvdFtError(
                "--picture with --min-np or --host-discovery-script: each part of the job has a "
                "report of its own; give --report, and hvdft report --picture draws each"
            )
        cooldown = options.blacklist_cooldown_range
        return Limits(
            options.min_np or options.num_proc,
            options.max_np or (None if script else options.num_proc),
            (cooldown[0], cooldown[1]) if cooldown else None,
            options.elastic_timeout or TIMEOUT_SECONDS,
            options.in_place,
        )
    for flag in (
        "max_np",
        "in_place",
        "elastic_timeout",
        "slots_per_host",
        "blacklist_cooldown_range",
    ):
        if getattr(options, flag) not in (None, False):
            raise HvdFtError(
                f"--{flag.replace('_', '-')} is for jobs that change their number of ranks; give "
                "--min-np or --host-discovery-script too"
            )
    return None


def hosts_of(options: argparse.Namespace, hosts: Sequence[Host]) -> Hosts:
    """Returns the object that names the hosts of a job while it runs.

    Args:
        options: The parsed command line.
        hosts: The hosts of -H or of a scheduler's allocation; none if all ranks are on this host,
            or if a script names the hosts.

    Raises:
        HvdFtError: Neither a flag nor a scheduler names any hosts.
    """
    if options.host_discovery_script is not None:
        return Discovery(options.host_discovery_script, options.slots_per_host or 1)
    if not hosts:
        raise HvdFtError(
            "--min-np is for jobs on several hosts, and all ranks are on this one; give -H or "
            "--host-discovery-script, or have a scheduler allocate hosts"
        )
    return NamedHosts(hosts)
