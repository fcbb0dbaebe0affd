"""The flags of `hvdft run`, in groups, and what they say about a job's environment."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import Any

from hvd_ft import __version__
from hvd_ft.errors import HvdFtError
from hvd_ft.job.agent_flags import add_agent_flags
from hvd_ft.job.binding import BIND_TO, MAP_BY
from hvd_ft.job.ports import Ports
from hvd_ft.job.settings import OUTPUT_PREFIXES, TOPOLOGIES
from hvd_ft.launcher.autotune_flags import add_autotune
from hvd_ft.launcher.config_file import ConfigFile
from hvd_ft.launcher.horovodrun_flags import REFUSED, add_horovodrun
from hvd_ft.launcher.resizing_flags import add_resizing
from hvd_ft.launcher.status_page import PageAddress
from hvd_ft.system.command_line import Parser, duration, whole
from hvd_ft.system.commit import version_text

_PREFIX = "HOROVOD_FT_OUTPUT_PREFIX"


def add_flags(run: Parser) -> None:
    """Adds all flags.

    Args:
        run: the parser that gets them.
    """
    run.usage = "%(prog)s [-np N] [FLAG ...] COMMAND [ARGUMENT ...]"
    run.elsewhere = REFUSED
    run.add_argument(
        "-v", "--version", action="version", version=f"hvdft {version_text(__version__)}"
    )
    job = run.add_argument_group("the job")
    survive = run.add_argument_group("what it survives")
    checkpoints = run.add_argument_group("checkpoints (docs/how-to/checkpoints.md)")
    observe = run.add_argument_group("observe it")
    place = run.add_argument_group("placement and network (docs/how-to/hosts.md)")
    rehearse = run.add_argument_group("rehearse failures (docs/how-to/drills.md)")
    _add_job(job)
    _add_survival(survive)
    add_resizing(survive)
    _add_checkpoints(checkpoints)
    add_agent_flags(run, survive=survive, observe=observe, rehearse=rehearse)
    _add_observation(run, observe)
    _add_placement(run, place)
    add_autotune(run)
    add_horovodrun(run)


def _add_job(group: Any) -> None:
    group.add_argument(
        "-np",
        "--num-proc",
        type=whole(of="ranks"),
        metavar="N",
        help="number of ranks (default: the slots of a scheduler's allocation, "
        "docs/how-to/schedulers.md)",
    )
    hosts = group.add_mutually_exclusive_group()
    hosts.add_argument(
        "-H",
        "--hosts",
        metavar="HOST:N,...",
        help="hosts and their slots, such as n0:4,n1:2 (default: those of a scheduler's "
        "allocation; outside of one all ranks run on this host)",
    )
    hosts.add_argument(
        "--hostfile",
        "-hostfile",
        metavar="FILE",
        help="a file with the hosts, one per line, as in: n0 slots=4",
    )
    group.add_argument(
        "--config-file",
        action=ConfigFile,
        metavar="FILE",
        help="a file of horovodrun's (YAML) with more flags; those given here win",
    )


def _add_survival(group: Any) -> None:
    group.add_argument(
        "--spare-hosts",
        metavar="HOST:N,...",
        help="hosts that replace lost ones of -H, such as n3:4 (docs/how-to/spare-hosts.md)",
    )


def _add_checkpoints(group: Any) -> None:
    group.add_argument(
        "--checkpoint-dir",
        metavar="DIR",
        help="write checkpoints of the job to DIR in the background",
    )
    group.add_argument(
        "--checkpoint-interval",
        type=duration,
        metavar="TIME",
        help="time from one checkpoint to the next, such as 90s, 10m (the default) or 2h",
    )
    group.add_argument(
        "--checkpoint-keep",
        type=whole(of="checkpoints"),
        metavar="N",
        help="keep the N newest checkpoints (default: 3)",
    )
    group.add_argument(
        "--grace",
        type=duration,
        metavar="SECONDS",
        help="on SIGTERM or SIGUSR1 write a checkpoint first; end with code 143, after SECONDS at "
        "the latest",
    )
    group.add_argument(
        "--resume",
        metavar="DIR|JOB",
        help="continue from the newest checkpoint in DIR, or from the checkpoint DIR; or resume a "
        "job that ended because of a lost host: give the same -np, -H and command",
    )


def _add_observation(run: Parser, group: Any) -> None:
    group.add_argument("--picture", metavar="FILE", help="draw each rank's state over time (PNG)")
    group.add_argument(
        "--live",
        action=argparse.BooleanOptionalAction,
        help="show a live line per rank (default: if the output is a terminal)",
    )
    group.add_argument(
        "--status-port",
        type=_page_address,
        metavar="[ADDRESS:]PORT",
        help="serve a status page, /state.json and Prometheus's /metrics there, on loopback unless "
        "an address is given (docs/how-to/status-page.md)",
    )
    group.add_argument(
        "--output-filename",
        metavar="DIR",
        help="append a copy of what rank N prints to DIR/rank.N/stdout and stderr, on its host "
        "(docs/how-to/output.md)",
    )
    prefix = group.add_mutually_exclusive_group()
    prefix.add_argument(
        "--no-prefix",
        dest="output_prefix",
        action="store_const",
        const="none",
        help="leave out the rank before each line of output, as in [3]<stdout>:",
    )
    prefix.add_argument(
        "--prefix-output-with-timestamp",
        "-prefix-timestamp",
        dest="output_prefix",
        action="store_const",
        const="time",
        help="write the time before it",
    )
    group.add_argument("--verbose", action="store_true", help="print how mpirun is started")


def _add_placement(run: Parser, group: Any) -> None:
    group.add_argument(
        "--bind-to",
        choices=BIND_TO,
        help="CPUs and memory of a rank: its even share of the host's CPUs (auto, the default), a "
        "core, its socket or NUMA node, or anywhere (docs/how-to/numa.md)",
    )
    group.add_argument(
        "--map-by",
        choices=MAP_BY,
        help="where a host's ranks run: consecutive ones beside each other (slot, the default), "
        "or in turn on its NUMA nodes or sockets",
    )
    group.add_argument(
        "--network-interface",
        "--network-interfaces",
        type=_interface,
        metavar="NIC",
        help="interface of every host, such as eth0, that the job uses: on which this command and "
        "mpirun listen, and over which MPI's tcp provider sends (docs/how-to/hosts.md#the-network)",
    )
    group.add_argument(
        "--ports",
        type=_ports,
        metavar="LOW-HIGH",
        help="listen only on these TCP ports, for firewalls, such as 40000-40099",
    )
    group.add_argument(
        "--tuning",
        metavar="FILE",
        help="settings of hvdft tune; off: take none (default: those of these hosts, if there are "
        "any, docs/how-to/tune.md)",
    )
    run.expert(
        group.add_argument(
            "--topology",
            choices=TOPOLOGIES,
            help="members of the ring: hosts, whose ranks share memory (hierarchical, the "
            "default), or all ranks, with MPI between any two (flat)",
        )
    )


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


def network_environment(options: argparse.Namespace) -> dict[str, str]:
    """Returns the settings of the network flags, by environment variable."""
    given = {
        "HOROVOD_FT_INTERFACE": options.network_interface,
        "FI_TCP_IFACE": options.network_interface,
        "HOROVOD_FT_PORTS": options.ports,
    }
    return {name: value for name, value in given.items() if value}


def binding_environment(options: argparse.Namespace) -> dict[str, str]:
    """Returns the settings of the flags for the ranks' CPUs, by environment variable."""
    given = {"HOROVOD_FT_BIND_TO": options.bind_to, "HOROVOD_FT_MAP_BY": options.map_by}
    return {name: value for name, value in given.items() if value}


def output_environment(options: argparse.Namespace, environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings of the flags for output, by environment variable.

    Args:
        options: of the command line.
        environ: the user's environment, which the flags override.

    Raises:
        HvdFtError: --output-filename is a file.
    """
    given = {_PREFIX: options.output_prefix or environ.get(_PREFIX) or OUTPUT_PREFIXES[0]}
    if options.output_filename:
        directory = os.path.abspath(options.output_filename)
        if os.path.isfile(directory):
            raise HvdFtError(
                f"--output-filename {directory} is a file; give a directory, which gets a folder "
                "for each rank"
            )
        given["HOROVOD_FT_OUTPUT_DIR"] = directory
    return given
