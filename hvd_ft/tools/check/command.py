"""The command line of `hvdft check`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from hvd_ft.errors import HvdFtError
from hvd_ft.members.hosts import Host, parse_hosts
from hvd_ft.system.command_line import AddCommand, whole
from hvd_ft.system.say import answer, say

_THOUSANDS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9}


def add_check(commands: Any, add: AddCommand) -> None:
    """Adds `check` to the command line.

    Args:
        commands: Where to.
        add: Makes a command's parser of its place, name, help and example.
    """
    what = (
        "check the installation, this host and the hosts of a job: what is wrong, why it matters, "
        "and how to mend it. Code 0: nothing, 1: warnings, 2: errors"
    )
    check = add(commands, "check", what, "hvdft check -H n0:4,n1:4 --params 100M")
    check.add_argument(
        "-np", "--num-proc", type=whole(of="ranks"), metavar="N",
        help="ranks of the job that is to run (default: the slots of -H, or 1)",
    )  # fmt: skip
    check.add_argument(
        "-H",
        "--hosts",
        metavar="HOST:N,...",
        help="look at these hosts too, in parallel: limits, versions, clocks, links, and a short "
        "test that names a host slower than the others; and say what their order means for a ring",
    )
    check.add_argument(
        "--params", type=parameters, metavar="N",
        help="parameters of the model, such as 100M: whether it fits, in float32 with Adam",
    )  # fmt: skip
    check.add_argument(
        "--json", action="store_true", help="print everything as JSON (docs/how-to/check.md)"
    )
    check.add_argument(
        "--numa",
        nargs="?",
        const="",
        metavar="JOB",
        help="show NUMA nodes instead, where a running job's ranks, agents and memory are, and "
        "what hurts (default: the only job on this node)",
    )
    check.set_defaults(handler=_check)


def parameters(text: str) -> int:
    """Reads a number of parameters, such as `100M`."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([KMGB]?)", text.upper(), re.ASCII)
    count = int(float(match[1]) * _THOUSANDS[match[2]]) if match else 0
    if not 0 < count <= 10**13:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of parameters, such as 100M")
    return count


def _check(options: argparse.Namespace) -> int:
    if options.numa is not None:
        if options.hosts is not None:
            raise HvdFtError("-H is for a job's hosts and --numa for this one: give one of them")
        return _check_numa(options.numa)
    from hvd_ft.tools.check import check_output, doctor

    hosts = parse_hosts(options.hosts, options.num_proc or 1) if options.hosts is not None else ()
    if hosts:
        from hvd_ft.tools.check.hosts import describe_order

        order = describe_order(options.hosts)
    quiet = options.json

    def show(line: str) -> None:
        if not quiet:
            answer(line)

    if hosts:
        show(f"hosts: {order}")
    wanted = doctor.Wanted(merged(hosts, options.num_proc), options.num_proc, options.params)
    found = doctor.examine(wanted, show)
    code = check_output.exit_code(found.findings)
    if quiet:
        answer(check_output.as_json(found.parts, found.here, found.seen, found.findings))
        return code
    if found.seen:
        Console(width=check_output.COLUMNS).print(check_output.hosts_table(found.seen))
    for line in found.wrong:
        say(line)
    for finding in found.findings:
        if finding.hosts or finding.what not in found.named:
            answer(check_output.block(finding))
    if line := check_output.verdict(found.findings):
        answer(line)
    return code


def merged(hosts: Sequence[Host], size: int | None) -> list[Host]:
    """Returns each host once, with the ranks of a job that will be there.

    Args:
        hosts: as given, in the order of their ranks.
        size: of the job; None: every slot takes a rank.
    """
    left = sum(host.slots for host in hosts) if size is None else size
    ranks: dict[str, int] = {}
    for host in hosts:
        taken = min(host.slots, left)
        left -= taken
        if taken:
            ranks[host.name] = ranks.get(host.name, 0) + taken
    return [Host(name, count) for name, count in ranks.items()]


def _check_numa(job: str) -> int:
    from hvd_ft.tools.check.numa import check_numa

    for line in check_numa(job, Console()):
        say(f"warning: {line}")
    return 0
