"""The keeper: prepares warm spares, one for each that is taken or dies, as long as the job lives.

Rank 0's nursery starts it as a process of its own. It forks a holder for every spare.
"""

import argparse
import contextlib
import os
import select
import sys
from collections.abc import Mapping, Sequence

import psutil

from hvd_ft import native
from hvd_ft.burial import bury
from hvd_ft.channel import Channel
from hvd_ft.python_command import PythonCommand
from hvd_ft.spare import EXIT_UNFIT
from hvd_ft.spare_holder import fork_holder
from hvd_ft.spare_pool import MAXIMUM_EARLY_DEATHS, SparePool, may_prepare
from hvd_ft.spare_preload import imported_modules, installed

_NEEDED = "tensorflow,hvd_ft.tensorflow.keras"
_LOOK_AGAIN_SECONDS = 0.1  # at the ranks' states, while a spare is missing
_OF_A_RANK = {"HOROVOD_RANK", "HOROVOD_LOCAL_RANK", "HOROVOD_FT_DIR"}


def keeper_command(count: int, command: Sequence[str]) -> list[str]:
    """Returns the command line of a keeper; it is to run in the job's directory.

    Args:
        count: how many spares are to wait.
        command: of the worker.
    """
    module = "hvd_ft.spare_keeper"
    return [sys.executable, "-m", module, str(count), os.getcwd(), "--", *command]


def main() -> None:
    """Keeps spares until it is killed, or has given up and said so."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int)
    parser.add_argument("cwd", help="the worker's")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    native.become_subreaper()
    command = PythonCommand.parse(options.command)
    directory = command.import_directory(options.cwd)
    source = command.source(options.cwd)
    modules = installed(imported_modules(source, directory), directory) if source else []
    argv = [sys.executable, "-m", "hvd_ft.spare", directory, _NEEDED, *modules]
    _keep(SparePool(options.count), argv, spare_environment(os.environ))


def spare_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Returns a worker's environment without what tells which rank it is."""
    return {name: value for name, value in env.items() if name not in _OF_A_RANK}


def _keep(pool: SparePool, argv: Sequence[str], env: Mapping[str, str]) -> None:
    view = native.View(os.getcwd())
    holders: dict[int, tuple[int, Channel]] = {}
    number = 0
    while not pool.given_up or holders:
        if pool.wants_one and may_prepare(view.status(rank).state for rank in range(view.size)):
            number += 1
            holders[number] = fork_holder(argv, env, number)
            pool.started(number)
        by_channel = {channel: spare for spare, (_, channel) in holders.items()}
        timeout = _LOOK_AGAIN_SECONDS if pool.wants_one else None
        for channel in select.select(list(by_channel), [], [], timeout)[0]:
            spare = by_channel[channel]
            messages = channel.receive()
            for message in messages or ():
                pool.taken(spare) if message["report"] == "taken" else pool.ready(spare)
            if messages is None:
                pid = holders.pop(spare)[0]
                channel.close()
                status = os.waitpid(pid, 0)[1]
                _bury_orphans({pid for pid, _ in holders.values()})
                unfit = os.waitstatus_to_exitcode(status) == EXIT_UNFIT
                had_given_up = pool.given_up
                pool.ended(spare, unfit)
                # One that is unfit says so itself.
                if pool.given_up and not had_given_up and not unfit:
                    print(
                        f"hvdft: {MAXIMUM_EARLY_DEATHS} spares in a row were killed while they "
                        "imported; the job goes on without spares",
                        file=sys.stderr,
                        flush=True,
                    )


def _bury_orphans(holders: set[int]) -> None:
    """Ends what came to us because a holder was killed before it could bury it."""

    def reap() -> None:
        for child in psutil.Process().children():
            if child.pid not in holders:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(child.pid, os.WNOHANG)

    bury(reap, spared=holders)


if __name__ == "__main__":
    main()
