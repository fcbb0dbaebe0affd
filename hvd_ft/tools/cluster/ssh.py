"""The `ssh` that mpirun and horovodrun find: runs a command through another node's exec server."""

import getopt
import os
import pwd
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from hvd_ft.errors import HvdFtError
from hvd_ft.tools.cluster.cluster_dir import ClusterDir
from hvd_ft.tools.cluster.environment import for_ssh
from hvd_ft.tools.cluster.exec_server import enter
from hvd_ft.tools.cluster.plan import Plan

_PORT = 22
# Not the user's: bash reads start-up files when its stdin is a socket, and what those do must not
# be cut short each time a node is killed.
_SHELL = "/bin/sh"
FAILED = 255  # ssh's exit code when ssh itself fails
_OPTIONS = "46AaCfGgKkMNnqsTtVvXxYyB:b:c:D:E:e:F:I:i:J:L:l:m:O:o:P:p:Q:R:S:W:w:"


@dataclass(frozen=True)
class Call:
    """A call of ssh.

    Attributes:
        host: The name or address of a host.
        command: The words that a shell receives as one line; none: an interactive shell.
        input: Whether the command reads our stdin.
    """

    host: str
    command: Sequence[str]
    input: bool = True


def parse(arguments: Sequence[str]) -> Call:
    """Reads ssh's command line; options may stand before the host and right after it.

    Raises:
        HvdFtError: The arguments are not a command line of ssh.
    """
    try:
        options, rest = getopt.getopt(list(arguments), _OPTIONS)
        if not rest:
            raise HvdFtError("no host given; give it as in: ssh n1 hostname")
        host = rest[0].rpartition("@")[2]
        more, command = getopt.getopt(rest[1:], _OPTIONS)
    except getopt.GetoptError as error:
        raise HvdFtError(f"{error}; give ssh's options") from None
    return Call(host, command, ("-n", "") not in options + more)


def node_of(plan: Plan, host: str, here: str) -> str:
    """Returns the node that a host's name or address means.

    Args:
        plan: The cluster.
        host: The name or address.
        here: This host's name, for `localhost`.

    Raises:
        HvdFtError: No node has that name.
    """
    names = {address: node for node, address in plan.addresses.items()}
    names |= {"localhost": here, "127.0.0.1": here}
    node = names.get(host, host)
    if node not in plan.nodes:
        raise HvdFtError(
            f"Could not resolve hostname {host}: it is not a node of cluster {plan.name}"
        )
    return node


def check_reachable(node: str, address: str) -> None:
    """Checks that packets get there and back, as the exec server does not use the network.

    Raises:
        HvdFtError: They do not within the kernel's time limit for a connection.
    """
    try:
        socket.create_connection((address, _PORT)).close()
    except ConnectionRefusedError:
        pass  # connection refused: the node has answered
    except OSError as error:
        raise HvdFtError(
            f"connect to host {node} port {_PORT}: {error.strerror or error}"
        ) from None


def main() -> int:
    """Runs `ssh argv[2:]` in the cluster `argv[1]`; returns the command's exit code."""
    home = ClusterDir(sys.argv[1])
    try:
        call = parse(sys.argv[2:])
        plan = home.plan()
        node = node_of(plan, call.host, socket.gethostname())
        check_reachable(node, plan.addresses[node])
        if not call.input:
            nothing = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nothing, 0)
        user = pwd.getpwuid(os.geteuid())
        command = [_SHELL, "-c", " ".join(call.command)] if call.command else [_SHELL]
        environment = for_ssh(home, user.pw_name, user.pw_dir, _SHELL)
        # sshd does not notice a signal to its client either.
        return enter(home.exec_socket(node), command, environment, user.pw_dir, forward=False)
    except HvdFtError as error:
        sys.stderr.write(f"ssh: {error}\n")
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
