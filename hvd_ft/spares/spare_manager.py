"""The spare manager: prepares a warm spare for each that is taken or dies, while the job lives.

Rank 0's shim starts it as a process of its own. It forks a shim for every spare.
"""

import argparse
import contextlib
import functools
import importlib.util
import os
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
from hvd_ft.system.event_loop import EventLoop, Watch
from hvd_ft.system.reaper import kill_descendants
from hvd_ft.system.say import say

# What a spare imports before the rest, by the framework of the script.
_NEEDED = {
    "tensorflow": "tensorflow,hvd_ft.tensorflow.keras",
    "torch": "torch,hvd_ft.torch",
}
_LOOK_AGAIN_SECONDS = 0.1  # between looks at the ranks' states, while a spare is missing
_OF_A_RANK = {"HOROVOD_RANK", "HOROVOD_LOCAL_RANK", "HOROVOD_FT_DIR"}


def manager_command(count: int, command: Sequence[str]) -> list[str]:
    """Returns the command line of a spare manager; it is to run in the job's directory.

    Args:
        count: number of spares that should wait.
        command: of the worker.
    """
    module = "hvd_ft.spares.spare_manager"
    return [sys.executable, "-m", module, str(count), os.getcwd(), "--", *command]


def main() -> None:
    """Keeps spares ready until it is killed, or has given up with a message."""
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
    argv = [sys.executable, "-m", "hvd_ft.spares.spare", directory, needed(modules), *modules]
    _Manager(SparePool(options.count), argv, spare_environment(os.environ)).run()


def needed(modules: Sequence[str]) -> str:
    """Returns what a spare of this script cannot do without, separated by commas.

    Args:
        modules: that the script imports.
    """
    own = {part for module in modules for part in module.split(".")}
    if own & _NEEDED.keys():
        return ",".join(names for framework, names in _NEEDED.items() if framework in own)
    return next(names for name, names in _NEEDED.items() if importlib.util.find_spec(name))


def spare_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Returns a worker's environment without the variables of its rank."""
    return {name: value for name, value in env.items() if name not in _OF_A_RANK}


class _Manager:
    """Keeps the pool full.

    Args:
        pool: the rule.
        argv: starts a spare, but for the descriptor of its socket.
        env: of the spares.
    """

    def __init__(self, pool: SparePool, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self._pool = pool
        self._argv = argv
        self._env = env
        self._observer = native.Observer(os.getcwd())
        self._shims: dict[int, int] = {}  # process ids by the spares' numbers
        self._number = 0

    def run(self) -> None:
        """Prepares spares until it gives up and none is left."""
        with EventLoop() as loop:
            self._prepare = loop.timer(lambda: self._start_spares(loop))
            self._prepare.set(loop.now())
            loop.run(until=lambda: self._pool.given_up and not self._shims)

    def _start_spares(self, loop: EventLoop) -> None:
        observer = self._observer
        if self._pool.wants_one and may_prepare(
            observer.status(rank).state for rank in range(observer.size)
        ):
            self._number += 1
            pid, channel = fork_spare_shim(self._argv, self._env, self._number)
            self._shims[self._number] = pid
            self._pool.started(self._number)
            watch = loop.watch(channel)
            watch.set(functools.partial(self._on_shim, loop, watch, channel, self._number))
        if self._pool.wants_one:
            self._prepare.set(loop.now() + _LOOK_AGAIN_SECONDS)

    def _on_shim(self, loop: EventLoop, watch: Watch, channel: Channel, spare: int) -> None:
        messages = channel.receive()
        for message in messages or ():
            if message["report"] == "taken":
                self._pool.taken(spare)
            else:
                self._pool.ready(spare)
        if messages is None:
            watch.end()
            channel.close()
            self._on_shim_ended(spare)
        self._prepare.set(loop.now())

    def _on_shim_ended(self, spare: int) -> None:
        status = os.waitpid(self._shims.pop(spare), 0)[1]
        _kill_orphans(set(self._shims.values()))
        unfit = os.waitstatus_to_exitcode(status) == EXIT_UNFIT
        had_given_up = self._pool.given_up
        self._pool.ended(spare, unfit)
        # An unfit spare reports that itself.
        if self._pool.given_up and not had_given_up and not unfit:
            say(
                f"{MAXIMUM_EARLY_DEATHS} spares in a row were killed while they "
                "imported; the job continues without spares"
            )


def _kill_orphans(shims: set[int]) -> None:
    """Ends the orphans of a shim that was killed before it could end them."""

    def reap() -> None:
        for child in psutil.Process().children():
            if child.pid not in shims:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(child.pid, os.WNOHANG)

    kill_descendants(reap, spared=shims)


if __name__ == "__main__":
    main()
