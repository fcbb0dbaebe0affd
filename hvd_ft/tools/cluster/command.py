"""The command line of `hvdft cluster`."""

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hvd_ft.errors import HvdFtError
from hvd_ft.system.command_line import AddCommand, whole
from hvd_ft.system.say import answer
from hvd_ft.tools.cluster import faults
from hvd_ft.tools.cluster.cluster_dir import ClusterDir
from hvd_ft.tools.cluster.faults import DIRECTIONS
from hvd_ft.tools.cluster.plan import Plan

_EXAMPLES = """Example: hvdft cluster up -n 3 --rate 1gbit
  hvdft cluster run -- mpirun -np 8 -hosts n0,n1,n2 hostname
  hvdft cluster run -- horovodrun -np 8 -H $(hvdft cluster hosts 4-3-1) hostname
  hvdft cluster exec n1 ip address
  hvdft cluster down

Nodes are n0, n1, ... They share this machine's files and CPUs. Needs root. See docs/cluster.md."""


def add_cluster(commands: Any, add: AddCommand) -> None:
    """Adds `cluster` and its commands to the command line.

    Args:
        commands: The parsers to which this one is added.
        add: Makes a command's parser from its place, name, help and example.
    """
    cluster = add(
        commands,
        "cluster",
        "a cluster of several nodes on this machine, for tests and measurements",
        "",
    )
    cluster.formatter_class = argparse.RawDescriptionHelpFormatter
    cluster.epilog = _EXAMPLES
    kinds = cluster.add_subparsers(
        title="commands", metavar="COMMAND", required=True, parser_class=type(cluster)
    )

    def command(
        name: str, text: str, example: str, handler: Callable[[argparse.Namespace], int]
    ) -> argparse.ArgumentParser:
        parser = add(kinds, name, text, f"hvdft cluster {example}")
        parser.add_argument("--name", default=Plan.name, help="which cluster (default: default)")
        parser.set_defaults(handler=handler)
        return parser

    starting = command("up", "start a cluster", "up -n 3 --rate 1gbit", _up)
    starting.add_argument("-n", "--nodes", type=whole(of="nodes"), default=Plan.size, metavar="N",
                          help="number of nodes (default: 3)")  # fmt: skip
    starting.add_argument("--rate", metavar="RATE",
                          help="of each node's link, such as 200mbit (default: unlimited)",
                          )  # fmt: skip
    starting.add_argument("--delay", metavar="TIME",
                          help="from one node to another, such as 5ms (default: none)")  # fmt: skip
    running = command("run", "run a command on node n0", "run -- mpirun -np 2 hostname", _run)
    entering = command("exec", "run a command on a node", "exec n1 hostname", _exec)
    entering.add_argument("node", metavar="NODE", help="n0, n1, ...")
    for parser in (running, entering):
        parser.add_argument("command", nargs=argparse.REMAINDER, metavar="CMD",
                            help="the command with its arguments")  # fmt: skip
    placing = command("hosts", "print the hosts and slots of a placement, as -H takes them",
                      "hosts 4-3-1", _hosts)  # fmt: skip
    placing.add_argument("placement", metavar="PLACEMENT", help="ranks of each node, as in 4-3-1")
    placing.add_argument("--machine-file", metavar="FILE",
                         help="write FILE for mpirun -machinefile instead")  # fmt: skip
    cutting = command(
        "cut",
        "cut a node's link: packets vanish",
        "cut n1",
        _fault(lambda home, o: faults.cut(home, o.node, o.direction)),
    )
    cutting.add_argument("--direction", choices=DIRECTIONS, default=DIRECTIONS[0],
                         help="out: only what it sends; in: only what is sent to it")  # fmt: skip
    losing = command(
        "lose",
        "make a node's link lose packets at random",
        "lose n1 5",
        _fault(lambda home, o: faults.lose(home, o.node, o.percent)),
    )
    rating = command(
        "rate",
        "set the rate of a node's link",
        "rate n1 1mbit",
        _fault(lambda home, o: faults.set_rate(home, o.node, o.rate)),
    )
    healing = command(
        "heal",
        "restore a node's link",
        "heal n1",
        _fault(lambda home, o: faults.heal(home, o.node)),
    )
    resetting = command(
        "reset",
        "reset all TCP connections of a node",
        "reset n1",
        _fault(lambda home, o: faults.reset(home, o.node)),
    )
    killing = command(
        "kill",
        "kill a node as a power failure would",
        "kill n1",
        _fault(lambda home, o: faults.kill(home, o.node)),
    )
    for parser in (cutting, losing, rating, healing, resetting, killing):
        parser.add_argument("node", metavar="NODE", help="n0, n1, ...")
    losing.add_argument("percent", type=float, metavar="PERCENT", help="of the packets")
    rating.add_argument("rate", metavar="RATE", help="such as 1mbit")
    command("status", "list the nodes", "status", _status)
    command("down", "end the cluster and everything on it", "down", _down)


def _up(options: argparse.Namespace) -> int:
    from hvd_ft.tools.cluster.lifecycle import up

    plan = Plan(options.name, options.nodes, options.rate, options.delay)
    up(plan)
    answer(f"cluster {plan.name} is up: {', '.join(plan.nodes)}; {plan.links}")
    return 0


def _down(options: argparse.Namespace) -> int:
    from hvd_ft.tools.cluster.lifecycle import down

    down(options.name)
    return 0


def _run(options: argparse.Namespace) -> int:
    return _enter(options.name, "n0", options.command)


def _exec(options: argparse.Namespace) -> int:
    return _enter(options.name, options.node, options.command)


def _fault(
    act: Callable[[ClusterDir, argparse.Namespace], None],
) -> Callable[[argparse.Namespace], int]:
    def handler(options: argparse.Namespace) -> int:
        act(ClusterDir(options.name), options)
        return 0

    return handler


def _enter(name: str, node: str, words: Sequence[str]) -> int:
    from hvd_ft.tools.cluster.environment import for_command
    from hvd_ft.tools.cluster.exec_server import enter

    home = ClusterDir(name)
    nodes = home.plan().nodes
    if node not in nodes:
        raise HvdFtError(f"{node} is not a node of cluster {name}; it has {', '.join(nodes)}")
    command = words[1:] if words[:1] == ["--"] else words
    if not command:
        raise HvdFtError("no command given; give it last, as in: hvdft cluster exec n1 hostname")
    return enter(home.exec_socket(node), command, for_command(home, os.environ), os.getcwd())


def _hosts(options: argparse.Namespace) -> int:
    from hvd_ft.members.hosts import host_list, machine_file, parse_placement

    hosts = parse_placement(options.placement)
    size = ClusterDir(options.name).plan().size
    if len(hosts) > size:
        raise HvdFtError(
            f"{options.placement} has {len(hosts)} nodes and cluster {options.name} has {size}; "
            "start it with more (hvdft cluster up -n)"
        )
    if options.machine_file is None:
        answer(host_list(hosts))
        return 0
    try:
        Path(options.machine_file).write_text(machine_file(hosts))
    except OSError as error:
        raise HvdFtError(
            f"cannot write {options.machine_file} ({error.strerror}); give another file"
        ) from None
    return 0


def _status(options: argparse.Namespace) -> int:
    from hvd_ft.tools.cluster.exec_server import process_behind

    home = ClusterDir(options.name)
    plan = home.plan()
    answer(f"cluster {plan.name}: {plan.links}")
    for node, address in plan.addresses.items():
        is_dead = process_behind(home.exec_socket(node)) is None
        answer(f"{node}  {address}  {'dead' if is_dead else 'up'}")
    return 0
