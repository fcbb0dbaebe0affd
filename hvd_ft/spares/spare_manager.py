"""The spare manager: prepares a warm spare for each that is taken or dies, while the job lives.

Rank 0's shim starts it as a process of its own. It forks a shim for every spare.
"""

import argparse
import contextlib
import os
import select
import sys
from collections.abc import Mapping, Sequence

import psutil

from hvd_ft import native
from hvd_ft.job.python_command import PythonCommand
from hvd_ft.spares.pool_policy import MAXIMUM_EARLY_DEATHS, SparePool, may_prepare
from hvd_ft.spares.preload import imported_modules, installed
from hvd_ft.spares.spare import EXIT_UNFIT
from hvd_ft.spares.spare_shim import fork_spare_shim
from hvd_ft.system.channel import Channel
from hvd_ft.system.reaper import kill_descendants

_NEEDED = "tensorflow,hvd_ft.tensorflow.keras"
_LOOK_AGAIN_SECONDS = 0.1  # at the ranks' states, while a spare is missing
_OF_A_RANK = {"HOROVOD_RANK", "HOROVOD_LOCAL_RANK", "HOROVOD_FT_DIR"}


def manager_command(count: int, command: Sequence[str]) -> list[str]:
    """Returns the command line of a spare manager; it is to run in the job's directory.

    Args:
        count: how many spares are to wait.
        command: of the worker.
    """
    module = "hvd_ft.spares.spare_manager"
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
    argv = [sys.executable, "-m", "hvd_ft.spares.spare", directory, _NEEDED, *modules]
    _keep(SparePool(options.count), argv, spare_environment(os.environ))


def spare_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Returns a worker's environment without what tells which rank it is."""
    return {name: value for name, value in env.items() if name not in _OF_A_RANK}


def _keep(pool: SparePool, argv: Sequence[str], env: Mapping[str, str]) -> None:
    observer = native.Observer(os.getcwd())
    shims: dict[int, tuple[int, Channel]] = {}
    number = 0
    while not pool.given_up or shims:
        if pool.wants_one and may_prepare(
            observer.status(rank).state for rank in range(observer.size)
        ):
            number += 1
            shims[number] = fork_spare_shim(argv, env, number)
            pool.started(number)
        by_channel = {channel: spare for spare, (_, channel) in shims.items()}
        timeout = _LOOK_AGAIN_SECONDS if pool.wants_one else None
        for channel in select.select(list(by_channel), [], [], timeout)[0]:
            spare = by_channel[channel]
            messages = channel.receive()
            for message in messages or ():
                pool.taken(spare) if message["report"] == "taken" else pool.ready(spare)
            if messages is None:
                pid = shims.pop(spare)[0]
                channel.close()
                status = os.waitpid(pid, 0)[1]
                _kill_orphans({pid for pid, _ in shims.values()})
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


def _kill_orphans(shims: set[int]) -> None:
    """Ends what came to us because a shim was killed before it could kill it."""

    def reap() -> None:
        for child in psutil.Process().children():
            if child.pid not in shims:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(child.pid, os.WNOHANG)

    kill_descendants(reap, spared=shims)


if __name__ == "__main__":
    main()
