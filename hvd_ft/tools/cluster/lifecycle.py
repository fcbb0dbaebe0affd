"""How a cluster starts and how it ends."""

import select
import signal
import subprocess
import time
from pathlib import Path

from hvd_ft.errors import HvdFtError
from hvd_ft.system.pidfd import send_signal
from hvd_ft.tools.cluster import tools
from hvd_ft.tools.cluster.cluster_dir import ClusterDir, changing
from hvd_ft.tools.cluster.exec_server import pidfd_behind, process_behind
from hvd_ft.tools.cluster.node import READY
from hvd_ft.tools.cluster.plan import Plan

START_TIMEOUT_SECONDS = 30.0  # a node takes some 0.2 s of CPU
END_TIMEOUT_SECONDS = 15.0
_TICK_SECONDS = 0.02


def up(plan: Plan) -> None:
    """Starts a cluster; the remains of a dead cluster of that name are removed first.

    Args:
        plan: The cluster to start.

    Raises:
        HvdFtError: It is up already, or cannot be made; nothing of it is left then.
    """
    plan.check()
    tools.check(plan)
    home = ClusterDir(plan.name)
    with changing():
        if home.alive():
            raise HvdFtError(
                f"cluster {plan.name} is up already; take it down first "
                f"(hvdft cluster down{home.flag}) or give another --name"
            )
        home.remove()
        try:
            _start(home, plan)
        except BaseException:
            _end(home)
            raise


def down(name: str) -> None:
    """Ends a cluster with every process on its nodes, or removes the remains of a dead one.

    Raises:
        HvdFtError: There is no such cluster, or it does not end within 15 s.
    """
    tools.check_root()
    home = ClusterDir(name)
    with changing():
        if not home.exists():
            raise HvdFtError(f"cluster {name} is not up; nothing to take down")
        _end(home)


def _start(home: ClusterDir, plan: Plan) -> None:
    with home.created(plan) as lock, home.log.open("wb") as log:
        switch = subprocess.Popen(
            [
                *("unshare", "--net", *tools.python("hvd_ft.tools.cluster.switch")),
                *(home.name, f"{lock}"),
            ],
            # The switch outlives this process, so it inherits nothing: no terminal, directory or
            # setting.
            cwd="/",
            env=tools.clean_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            pass_fds=(lock,),
            start_new_session=True,
        )
    switch.returncode = 0  # it is never waited for
    assert switch.stdout
    with switch.stdout:
        if select.select([switch.stdout], [], [], START_TIMEOUT_SECONDS)[0]:
            said = switch.stdout.readline().decode().strip()
        else:
            said = f"it takes longer than {START_TIMEOUT_SECONDS:.0f} s"
    if said != READY:
        [last] = home.log.read_text().strip().splitlines()[-1:] or ["it was killed"]
        raise HvdFtError(
            f"cluster {home.name} does not start: {said or last}; nothing is left of it"
        )


def _end(home: ClusterDir) -> None:
    """Kills the switch, and its nodes with it, and waits until every process is gone."""
    deadline = time.monotonic() + END_TIMEOUT_SECONDS
    while home.alive():
        if time.monotonic() > deadline:
            raise HvdFtError(
                f"cluster {home.name} has not ended within {END_TIMEOUT_SECONDS:.0f} s; "
                f"see who has {home.path}/alive (fuser) and end it"
            )
        for server in (home.switch_socket, *home.path.glob("n[0-9]*")):
            _kill_behind(server)
        time.sleep(_TICK_SECONDS)  # they are not our children: no event reports their end
    home.remove()


def _kill_behind(server: Path) -> None:
    if process_behind(server) == 0:
        raise HvdFtError("a cluster cannot be taken down from one of its nodes; do it outside")
    with pidfd_behind(server) as pidfd:
        if pidfd is not None:
            send_signal(pidfd, signal.SIGKILL)
