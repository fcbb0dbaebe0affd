"""Faults of a running cluster: links cut, lossy or slow, connections reset, nodes dead."""

import contextlib
import signal
from dataclasses import replace
from pathlib import Path

from hvd_ft.errors import HvdFtError
from hvd_ft.system.pidfd import has_ended, send_signal
from hvd_ft.tools.cluster import tools
from hvd_ft.tools.cluster.cluster_dir import ClusterDir
from hvd_ft.tools.cluster.exec_server import pidfd_behind, process_behind
from hvd_ft.tools.cluster.plan import DEVICE, NOT_LOSING, Plan, losing, shaping

_WAYS = {"both": ("egress", "ingress"), "out": ("egress",), "in": ("ingress",)}
DIRECTIONS = tuple(_WAYS)
_DEATH_SECONDS = 10.0
_SEGMENTS = 65535  # of a large packet, as devices have it


def cut(home: ClusterDir, node: str, direction: str = "both") -> None:
    """Cuts a node's link: packets vanish, and neither end gets an error.

    Args:
        home: The cluster.
        node: The node.
        direction: `out` cuts only what the node sends, `in` only what is sent to it.
    """
    _lose(home, node, 100.0, direction)


def lose(home: ClusterDir, node: str, percent: float) -> None:
    """Makes a node's link lose packets at random, a percentage in each direction."""
    if not 0 < percent <= 100:
        raise HvdFtError(
            f"{percent:g} % of the packets cannot be lost; give more than 0, up to 100"
        )
    _lose(home, node, percent, "both")


def heal(home: ClusterDir, node: str) -> None:
    """Restores a node's link to its state at the cluster's start."""
    pid = _init_of(home, node)
    _end_losing(home, node, pid)
    _shape(home, node, pid, home.plan())


def set_rate(home: ClusterDir, node: str, rate: str) -> None:
    """Sets the rate of a node's link in each direction, such as `1mbit`."""
    plan = replace(home.plan(), rate=rate)
    plan.check()
    _shape(home, node, _init_of(home, node), plan)


def reset(home: ClusterDir, node: str) -> None:
    """Resets every TCP connection of a node to another: both ends get an error."""
    pid = _init_of(home, node)
    tools.run("nsenter", f"--net=/proc/{pid}/ns/net", "ss", "--kill", "--tcp", "dst", "10.0.0.0/8")


def kill(home: ClusterDir, node: str) -> None:
    """Kills a node as a power failure would: processes, shared memory and network at once."""
    cut(home, node)  # or its dying processes would close their connections
    with pidfd_behind(home.exec_socket(node)) as pidfd:
        if pidfd is not None:  # or it has died meanwhile
            send_signal(pidfd, signal.SIGKILL)
            if not has_ended(pidfd, _DEATH_SECONDS):
                raise HvdFtError(f"node {node} does not die within {_DEATH_SECONDS:.0f} s; see ps")
    # Connections that its processes have left would keep its network for minutes.
    try:
        tools.batch("ip", [f"link del dev {node}"], _switch_of(home))
    except HvdFtError as error:
        if "Cannot find device" not in str(error):  # it has gone with the node's network
            raise


def _lose(home: ClusterDir, node: str, percent: float, direction: str) -> None:
    pid = _init_of(home, node)
    _end_losing(home, node, pid)
    links, filters = losing(percent, _WAYS[direction])
    _set_segments(home, node, pid, 1)  # or up to 64 KB were lost at a time
    tools.batch("ip", links, pid)
    tools.batch("tc", filters, pid)


def _end_losing(home: ClusterDir, node: str, pid: int) -> None:
    for program, line in NOT_LOSING:
        with contextlib.suppress(HvdFtError):
            tools.batch(program, [line], pid)
    _set_segments(home, node, pid, _SEGMENTS)


def _set_segments(home: ClusterDir, node: str, pid: int, count: int) -> None:
    for device, process in ((DEVICE, pid), (node, _switch_of(home))):
        tools.batch("ip", [f"link set dev {device} gso_max_segs {count}"], process)


def _shape(home: ClusterDir, node: str, pid: int, plan: Plan) -> None:
    for device, process in ((DEVICE, pid), (node, _switch_of(home))):
        with contextlib.suppress(HvdFtError):  # the link may have no rate
            tools.batch("tc", [f"qdisc del dev {device} root"], process)
        tools.batch("tc", shaping(plan, device, delayed=device == DEVICE), process)


def _init_of(home: ClusterDir, node: str) -> int:
    nodes = home.plan().nodes
    if node not in nodes:
        raise HvdFtError(f"{node} is not a node of cluster {home.name}; it has {', '.join(nodes)}")
    return _behind(home.exec_socket(node), f"node {node}")


def _switch_of(home: ClusterDir) -> int:
    return _behind(home.switch_socket, "the switch")


def _behind(server: Path, what: str) -> int:
    pid = process_behind(server)
    if not pid:
        state = "is dead" if pid is None else "can be disturbed only from outside of the cluster"
        raise HvdFtError(f"{what} {state}; see hvdft cluster status")
    return pid
