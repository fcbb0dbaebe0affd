"""The agent's handle on its shim, the small process that starts and reaps its processes.

The agent forks it before MPI is initialised (forking later is unsafe with RDMA providers) or, in a
new generation, reattaches to the one that an older agent has left. shim.py is the shim itself.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys

from hvd_ft.errors import HvdFtError
from hvd_ft.job.lifeline_messages import NodeFacts
from hvd_ft.shim import messages, reattach
from hvd_ft.shim.messages import Order, Reattached, Report
from hvd_ft.shim.shim import live
from hvd_ft.shim.starter import start_shim
from hvd_ft.system.channel import Channel, Message
from hvd_ft.system.pidfd import has_ended, pidfd_of_this_process, send_signal
from hvd_ft.system.say import say

_END_SECONDS = 8.0  # longer than the shim waits for processes that it kills


class ShimClient:
    """The handle.

    Attributes:
        pid: of the shim.
        channel: readable when `receive` has something to return.
        found: its report on the worker when it was reattached; None if it is new.
        end_seconds: how long it may take to end.

    Args:
        pid: see above. pidfd: its pidfd, which this object owns. channel: see above. found: see
            above.
        starter: the socket of the process that starts shims on this host (starter.py); "": there is
            none, and agents start theirs themselves.
    """

    def __init__(
        self,
        pid: int,
        pidfd: int,
        channel: Channel,
        found: Reattached | None = None,
        *,
        starter: str = "",
    ) -> None:
        self.pid = pid
        self._pidfd = pidfd
        self.channel = channel
        self.found = found
        self.end_seconds = _END_SECONDS
        self._starter = starter
        self._is_ours = found is None and not starter  # a child of this process

    @classmethod
    def fork(cls) -> "ShimClient":
        """Forks the shim; call it while the process has one thread and no MPI."""
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        agent = os.getpid()
        with pidfd_of_this_process() as own, theirs:
            pid = os.fork()
            if pid == 0:
                ours.close()
                live(theirs, own, agent)
        return cls(pid, os.pidfd_open(pid), Channel(ours))

    @classmethod
    def begin(cls, starter: str) -> "ShimClient":
        """Has the shim started by a starter; forks it if there is none, or it does not answer.

        Call it while the process has one thread and no MPI.
        """
        if not starter:
            return cls.fork()
        try:
            pid, pidfd, end = start_shim(starter)
        except HvdFtError as error:
            say(f"{error}; this agent starts its shim itself")
            return cls.fork()
        return cls(pid, pidfd, Channel(end), starter=starter)

    def replace(self) -> None:
        """Starts another shim in place of one that was killed.

        It executes a new program instead of forking, as this process uses MPI by now.
        """
        self.channel.close()
        os.close(self._pidfd)
        if self._is_ours:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
        self.found = None
        if self._starter:
            try:
                self.pid, self._pidfd, end = start_shim(self._starter)
            except HvdFtError as error:
                say(f"{error}; this agent starts its shim itself")
            else:
                self.channel, self._is_ours = Channel(end), False
                return
        ours, theirs = socket.socketpair()
        with theirs, pidfd_of_this_process() as own:
            passed = [theirs.fileno(), own]
            process = subprocess.Popen(
                [sys.executable, "-m", "hvd_ft.shim.shim", *map(str, passed), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                pass_fds=passed,
            )
        process.returncode = 0  # end() waits for it
        self._pidfd = os.pidfd_open(process.pid)
        self.pid, self.channel, self._is_ours = process.pid, Channel(ours), True

    @classmethod
    def reattach(
        cls,
        directory: str,
        rank: int,
        takeover: messages.Takeover,
        starter: str = "",
        *,
        seconds: float,
    ) -> "ShimClient | None":
        """Reattaches to the shim that an older agent of this rank has left; None if there is none.

        Args:
            directory: of the job.
            rank: of this agent.
            takeover: of this agent.
            starter: starts the shim that replaces it, if it dies; "": this agent does.
            seconds: for it to answer, before it is killed.

        Raises:
            HvdFtError: it has a newer agent, or cannot be killed.
        """
        reattached = reattach.reattach(directory, rank, takeover, seconds)
        if reattached is None:
            return None
        channel, found, pidfd = reattached
        return cls(found.shim, pidfd, channel, found, starter=starter)

    def watch_job(self, directory: str) -> None:
        """Orders the shim to lock the job's directory, and as the last one to remove it."""
        self._order(messages.EnterJob(directory))

    def attend(self, order: messages.Attend) -> None:
        """Orders the shim to watch the launcher, and this agent from its first `beat` on."""
        self._order(order)

    def keep(self, seconds: float) -> None:
        """Orders the shim to outlive its agent, and to wait so long for the next one."""
        self._order(messages.Keep(seconds))

    def beat(self, facts: NodeFacts | None) -> None:
        """Sends this agent's heartbeat and counts; the shim answers `BeatHeard`."""
        self._order(messages.Beat(facts))

    def note(self, note: Message) -> None:
        """Sends a line for the report to the agent of rank 0, through the launcher."""
        self._order(messages.Note(note))

    def want_flight(self, kind: str, text: str) -> None:
        """Tells the launcher that there is a reason for a flight record."""
        self._order(messages.FlightWanted(kind, text))

    def flight_part(self, number: int, part: Message) -> None:
        """Sends this rank's part of a flight record to the launcher."""
        self._order(messages.FlightPart(number, part))

    def interrupted(self) -> None:
        """Reports that the worker has received the user's SIGINT."""
        self._order(messages.Interrupted())

    def release(self, exit_code: int) -> None:
        """Ends the effect of `keep`: the job is over."""
        self._order(messages.Release(exit_code))

    def start(
        self,
        name: str,
        argv: list[str],
        env: dict[str, str],
        cwd: str,
        *,
        spare: bool = False,
        end_seconds: float = 0.0,
    ) -> None:
        """Starts a process in a session of its own; `started` or `refused` will be reported.

        With `spare` a warm spare becomes this process, if the job has one. With `end_seconds` it
        gets END_SIGNAL when everything ends, and is killed that much later.
        """
        self._order(messages.Start(name, argv, env, cwd, spare, end_seconds))

    def go(self) -> None:
        """Lets a worker that was reported as a spare begin; not before its pid is published."""
        self._order(messages.Begin())

    def kill(self, name: str, number: int) -> None:
        """Sends a signal to the process group of that name, if it is still running."""
        self._order(messages.Kill(name, number))

    def signal(self, name: str, number: int) -> None:
        """Sends a signal to only the process of that name, if it is still running."""
        self._order(messages.SignalOne(name, number))

    def kill_itself(self) -> None:
        """Kills the silent shim; its worker dies with it."""
        send_signal(self._pidfd, signal.SIGKILL)

    def limit(self, seconds: float, text: str) -> None:
        """Orders the shim to print `text` and kill the agent unless `unlimit` comes in time.

        A thread of the agent could not: MPI_Init and MPI_Finalize hold Python's lock.
        """
        self._order(messages.Limit(seconds, text))

    def unlimit(self) -> None:
        """Ends the effect of `limit`."""
        self._order(messages.Limit(None))

    def receive(self) -> list[Report] | None:
        """Reads the shim's reports, waiting if there are none.

        Returns: The complete reports, possibly none; None if the shim is gone.
        """
        wires = self.channel.receive()
        return None if wires is None else [messages.parse_report(wire) for wire in wires]

    def _order(self, order: Order) -> None:
        # The agent notices a dead shim by the end of its stream.
        with contextlib.suppress(OSError):
            self.channel.send(messages.to_wire(order))

    def end(self, timeout_seconds: float) -> bool:
        """Ends the shim and everything it has started.

        Returns:
            Whether it has ended in time.
        """
        self._order(messages.End())
        self.channel.close()
        ended = has_ended(self._pidfd, timeout_seconds)
        if ended and self._is_ours:
            os.waitpid(self.pid, 0)
        return ended
