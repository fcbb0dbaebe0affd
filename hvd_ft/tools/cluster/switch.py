"""The switch: the process that holds the bridge in its network namespace and builds the cluster.

It prints one line when everything is built. It holds the stdin of every node's init, so the nodes
end when the switch ends.
"""

import os
import subprocess
import sys

from hvd_ft.errors import HvdFtError
from hvd_ft.system.say import answer
from hvd_ft.tools.cluster.cluster_dir import ClusterDir
from hvd_ft.tools.cluster.exec_server import process_behind
from hvd_ft.tools.cluster.node import READY, listen
from hvd_ft.tools.cluster.plan import DEVICE, Plan, shaping
from hvd_ft.tools.cluster.tools import UNSHARE, batch, python


def main() -> None:
    """Builds the cluster `argv[1]`, whose lock is the descriptor `argv[2]`, and holds it."""
    home, lock = ClusterDir(sys.argv[1]), int(sys.argv[2])
    # Kept open: a client that connects learns this process's id.
    server = listen(home.switch_socket)
    try:
        nodes = _build(home, home.plan(), lock)
    except HvdFtError as error:
        answer(error)
        sys.exit(1)
    answer(READY)  # fails if the starter has died: then the cluster ends
    os.dup2(2, 1)
    for node in nodes:
        node.wait()
    server.close()


def _build(home: ClusterDir, plan: Plan, lock: int) -> list[subprocess.Popen[str]]:
    batch("ip", ["link add name br0 type bridge", "link set br0 up"])
    nodes = [_start(home, node, lock) for node in plan.nodes]
    for (node, address), process in zip(plan.addresses.items(), nodes, strict=True):
        assert process.stdout
        line = process.stdout.readline().strip()
        if line != READY:
            raise HvdFtError(line or f"node {node} ended while it started; start the cluster again")
        pid = process_behind(home.exec_socket(node))
        if not pid:
            raise HvdFtError(f"node {node} ended when it had started; start the cluster again")
        _connect(plan, node, address, pid)
    return nodes


def _start(home: ClusterDir, node: str, lock: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*UNSHARE, *python("hvd_ft.tools.cluster.node"), home.name, node],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=(lock,),
    )


def _connect(plan: Plan, node: str, address: str, pid: int) -> None:
    """Connects the bridge to the node whose init is `pid`."""
    batch(
        "ip",
        [
            f"link add name {node} type veth peer name {DEVICE} netns {pid}",
            f"link set {node} master br0 up",
        ],
    )
    batch("ip", [f"addr add {address}/24 dev {DEVICE}", f"link set {DEVICE} up"], pid)
    batch("tc", shaping(plan, DEVICE, delayed=True), pid)
    batch("tc", shaping(plan, node, delayed=False))


if __name__ == "__main__":
    main()
