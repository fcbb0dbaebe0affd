"""How a cluster starts and how it ends."""

import os
import select
import signal
import subprocess
import sys
import time

from hvd_ft.cluster import tools
from hvd_ft.cluster.door import process_behind
from hvd_ft.cluster.home import Home, changing
from hvd_ft.cluster.node import READY
from hvd_ft.cluster.plan import Plan
from hvd_ft.errors import HvdFtError

START_TIMEOUT_SECONDS = 30.0  # a node takes some 0.2 s of CPU
END_TIMEOUT_SECONDS = 15.0
_TICK_SECONDS = 0.02


def up(plan: Plan) -> None:
    """Starts a cluster; what a dead one of that name has left is removed first.

    Args:
        plan: What it is to be.

    Raises:
        HvdFtError: It is up already, or cannot be made; then nothing is left of it.
    """
    plan.check()
    tools.check(plan)
    home = Home(plan.name)
    with changing():
        if home.alive():
            raise HvdFtError(
                f"cluster {plan.name} is up already; take it down first "
                f"(hvdft cluster down{home.flag}) or give another --name"
            )
        home.remove()
        lock = home.create(plan)
        try:
            _start(home, lock)
        except BaseException:
            os.close(lock)
            _end(home)
            raise
        os.close(lock)


def down(name: str) -> None:
    """Ends a cluster with every process on its nodes, or removes what a dead one has left.

    Raises:
        HvdFtError: There is none, or it does not end within 15 s.
    """
    tools.check_root()
    home = Home(name)
    with changing():
        if not home.exists():
            raise HvdFtError(f"cluster {name} is not up; nothing to take down")
        _end(home)


def _start(home: Home, lock: int) -> None:
    with home.log.open("wb") as log:
        switch = subprocess.Popen(
            ["unshare", "--net", sys.executable, "-m", "hvd_ft.cluster.switch", home.name, f"{lock}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            pass_fds=(lock,),
            start_new_session=True,
        )
    assert switch.stdout
    with switch.stdout:
        if not select.select([switch.stdout], [], [], START_TIMEOUT_SECONDS)[0]:
            said = f"it takes longer than {START_TIMEOUT_SECONDS:.0f} s"
        else:
            said = switch.stdout.readline().decode().strip()
    if said != READY:
        last = home.log.read_text().strip().splitlines()[-1:]
        raise HvdFtError(
            f"cluster {home.name} does not start: {said or (last or ['it was killed'])[0]}; "
            "nothing is left of it"
        )
    switch.returncode = 0  # it lives on without us


def _end(home: Home) -> None:
    """Kills the switch, and its nodes with it, until nothing of them is left."""
    deadline = time.monotonic() + END_TIMEOUT_SECONDS
    while home.alive():
        if time.monotonic() > deadline:
            raise HvdFtError(
                f"cluster {home.name} has not ended within {END_TIMEOUT_SECONDS:.0f} s; "
                f"see who has {home.path}/alive (fuser) and end it"
            )
        for door in (home.switch_door, *home.path.glob("n[0-9]*")):
            _kill_behind(home, door.name)
        time.sleep(_TICK_SECONDS)
    home.remove()


def _kill_behind(home: Home, name: str) -> None:
    pid = process_behind(home.path / name)
    if pid == 0:
        raise HvdFtError("a cluster cannot be taken down from one of its nodes; do it outside")
    if pid is not None:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
