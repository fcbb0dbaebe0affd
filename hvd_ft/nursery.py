"""The agent's handle on its nursery, the small process that starts its processes and buries them.

The agent forks it before MPI is initialised (forking later is unsafe with RDMA providers), or, in a
new generation, takes over the one that an older agent has left. nursery_life.py is what it does.
"""

import contextlib
import os
import select
import socket
import sys

from hvd_ft import adoption
from hvd_ft.channel import Channel, Message
from hvd_ft.nursery_life import live


class NurseryProcess:
    """The handle.

    Attributes:
        pid: of the nursery.
        channel: where its reports come in.
        found: what it reported about the worker when it was taken over; None if it is new.
    """

    def __init__(self, pid: int, channel: Channel, found: Message | None = None) -> None:
        self.pid = pid
        self.channel = channel
        self.found = found

    @classmethod
    def fork(cls) -> "NurseryProcess":
        """Forks the nursery; call it while the process has one thread and no MPI."""
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            ours.close()
            live(theirs)
        theirs.close()
        return cls(pid, Channel(ours))

    @classmethod
    def adopt(cls, directory: str, rank: int, generation: int) -> "NurseryProcess | None":
        """Takes over the nursery that an older agent of this rank has left; None if there is none.

        Args:
            directory: of the job.
            rank: of this agent.
            generation: of this agent.

        Raises:
            HvdFtError: it has a newer agent, or does not answer.
        """
        adopted = adoption.adopt(directory, rank, generation)
        if adopted is None:
            return None
        channel, found = adopted
        return cls(found["nursery"], channel, found)

    def watch_job(self, directory: str) -> None:
        """Has the nursery lock the job's directory, and clear it at the end if it is the last."""
        self._order({"do": "job", "dir": directory})

    def keep(self, rank: int, generation: int, launcher: str, seconds: float) -> None:
        """Has the nursery live on without an agent, and wait for the next.

        Args:
            rank: of this agent.
            generation: of this agent.
            launcher: its address (lifeline.py); when it is dead, nobody will come.
            seconds: how long it waits.
        """
        order = {"rank": rank, "generation": generation, "launcher": launcher, "seconds": seconds}
        self._order({"do": "keep", **order})

    def release(self, exit_code: int) -> None:
        """Ends what `keep` began: the job is over."""
        self._order({"do": "release", "exit_code": exit_code})

    def start(
        self, name: str, argv: list[str], env: dict[str, str], cwd: str, spare: bool = False
    ) -> None:
        """Starts a process in a session of its own; `started` or `refused` will be reported.

        With `spare` a warm spare becomes this process, if the job has one.
        """
        order = {"do": "start", "name": name, "argv": argv, "env": env, "cwd": cwd, "spare": spare}
        self._order(order)

    def go(self) -> None:
        """Has a worker begin that was reported as a spare: not before everybody knows of it."""
        self._order({"do": "go"})

    def kill(self, name: str, number: int) -> None:
        """Sends a signal to the process group of that name, if it still runs."""
        self._order({"do": "kill", "name": name, "signal": number})

    def limit(self, seconds: float, text: str) -> None:
        """Has the nursery say `text` and kill the agent unless `unlimit` comes within the time.

        A thread of the agent could not: MPI_Init and MPI_Finalize hold Python's lock.
        """
        self._order({"do": "limit", "seconds": seconds, "text": text})

    def unlimit(self) -> None:
        """Ends what `limit` began."""
        self._order({"do": "limit", "seconds": None, "text": ""})

    def _order(self, message: Message) -> None:
        # Of a dead nursery the agent learns by the end of what it receives.
        with contextlib.suppress(OSError):
            self.channel.send(message)

    def end(self, timeout_seconds: float) -> bool:
        """Ends the nursery and everything it has started.

        Returns:
            Whether it has ended in time.
        """
        self._order({"do": "end"})
        self.channel.close()
        try:
            pidfd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            ended, _, _ = select.select([pidfd], [], [], timeout_seconds)
        finally:
            os.close(pidfd)
        if ended and self.found is None:
            os.waitpid(self.pid, 0)
        return bool(ended)
