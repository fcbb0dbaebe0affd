"""The user's hook commands, run when a worker dies or is back (`--on-failure`, `--on-restart`).

The shim runs each in a shell and in its own session, so they end with the job and never hold up
recovery.
"""

import os
import signal
import time
from collections.abc import Mapping

from hvd_ft.shim.client import ShimClient
from hvd_ft.system.wait_status import describe

TIMEOUT_SECONDS = 60.0


class Commands:
    """The hook commands of one agent.

    Args:
        shim: runs them.
        commands: the shell command of each hook, such as `{"on-failure": "mail …"}`.
        env: the environment that they get besides the facts.
        generation: the agent's generation; commands of an earlier one may still run.
    """

    def __init__(
        self,
        shim: ShimClient,
        commands: Mapping[str, str],
        env: Mapping[str, str],
        generation: int = 0,
    ) -> None:
        self._shim = shim
        self._commands = commands
        self._env = env
        self._generation = generation
        self._started = 0
        self._deadlines: dict[str, float] = {}  # running commands, by their names in the shim
        self._late: set[str] = set()

    def run(self, hook: str, facts: Mapping[str, str]) -> None:
        """Starts the hook's command, if the user gave one.

        Args:
            hook: which one.
            facts: environment variables that tell the command what happened.
        """
        command = self._commands.get(hook)
        if not command:
            return
        self._started += 1
        name = f"{hook} {self._generation}.{self._started}"
        self._deadlines[name] = time.monotonic() + TIMEOUT_SECONDS
        self._shim.start(name, ["/bin/sh", "-c", command], {**self._env, **facts}, os.getcwd())

    @property
    def running(self) -> bool:
        """Whether a command is still running."""
        return bool(self._deadlines)

    @property
    def look_at(self) -> float:
        """The time at which `kill_late` has to be called, on the clock of time.monotonic()."""
        waiting = [at for name, at in self._deadlines.items() if name not in self._late]
        return min(waiting, default=float("inf"))

    def kill_late(self) -> None:
        """Kills the commands that have used up their time."""
        now = time.monotonic()
        for name, deadline in self._deadlines.items():
            if deadline <= now and name not in self._late:
                self._late.add(name)
                self._shim.kill(name, signal.SIGKILL)

    def forget(self) -> None:
        """Forgets all commands, because they have died with their shim."""
        self._deadlines.clear()
        self._late.clear()

    def ended(self, name: str, status: int | None, error: str = "") -> str | None:
        """Handles the shim's report that a command has ended.

        Args:
            name: in the shim.
            status: as from wait(2); None if it could not be started.
            error: why it could not be started.

        Returns:
            One line for the user if the command failed.
        """
        if self._deadlines.pop(name, None) is None:
            return None  # an older agent's
        hook = f"the --{name.split(maxsplit=1)[0]} command"
        if status is None:
            return f"{hook} failed: {error}"
        if name in self._late:
            self._late.discard(name)
            return f"{hook} was killed: it ran for more than {TIMEOUT_SECONDS:.0f} s"
        if status != 0:
            return f"{hook} failed ({describe(status)})"
        return None
