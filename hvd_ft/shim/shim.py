"""The shim: the small process that starts an agent's processes and reaps them.

It lives in a session of its own, so it outlives an agent that is killed, or that Hydra kills
together with the agent's session: the agent's socket then ends. If it has been told to keep, it
lets its processes live and waits for an agent of the next generation (reattach.py). Otherwise it
kills what it started, clears the job directory if it is the last one there, and goes. It is a
subreaper, so all that its children leave behind, even in sessions of their own, comes to it.

An agent that is stopped it kills (beats.py). When nobody listens any more where the launcher did
(launcher_line.py), or the launcher says that the job is over, it ends everything. A launcher that
cannot be reached may live: so it waits as long as the launcher would wait for this host, and then
ends its processes, but leaves the job's files, from which the job can be resumed.

A worker can be a warm spare: then the spare's shim (spare_shim.py) is its parent and reaps it,
and the shim passes orders and reports on.

Orders:    attend(rank, host, generation, launcher, lease, host_timeout)   job(dir)
           keep(seconds)   start(name, argv, env, cwd, spare)   go
           kill(name, signal)   signal(name, signal)   limit(seconds, text)   beat(facts)
           note(note)   interrupted   release(exit_code)   end
Reports:   started(name, pid, time_ns, spare)   refused(name, error)
           exited(name, pid, status, time_ns)   unkillable(pids)   beat
           interrupt   stop(signal)   note(note)   reattached(shim, worker, running): the first one
           to a new agent
"""

import contextlib
import os
import select
import signal
import socket
import sys
import time
from typing import Any, NoReturn

from hvd_ft import native
from hvd_ft.errors import HvdFtError
from hvd_ft.job import mpi_files
from hvd_ft.job.beats import Beats
from hvd_ft.job.directory import JobDirectory
from hvd_ft.job.drills import AGENT_DIES, AGENT_STOPS, MPIRUN_DIES
from hvd_ft.job.launcher_processes import strike
from hvd_ft.shim.children import WORKER, Children
from hvd_ft.shim.launcher_line import LauncherLine
from hvd_ft.shim.output_relay import OutputRelay
from hvd_ft.shim.reattach import ReattachSocket
from hvd_ft.system.channel import Channel, Message
from hvd_ft.system.peer_credentials import peer_of

_DEATH_SECONDS = 5.0  # for an agent to die of SIGKILL
_WARN_SECONDS = 5.0  # for the launcher to be reached the first time, before that is told
_DRILLS = {AGENT_DIES, AGENT_STOPS, MPIRUN_DIES}
_NEVER = float("inf")


def live(end: socket.socket, agent: int) -> NoReturn:
    """The life of the shim process; never returns to the agent's code.

    Args:
        end: of the channel to the agent.
        agent: its process id.
    """
    code = 1
    try:
        os.setsid()
        _close_descriptors(keep=end.fileno())
        native.become_subreaper()
        _Shim(Channel(end), agent).run()
        code = 0
    except Exception as error:  # the agent sees the socket end; this says why
        _say(f"the shim failed: {error!r}")
    finally:
        os._exit(code)


def _close_descriptors(keep: int) -> None:
    for name in os.listdir("/proc/self/fd"):
        if (descriptor := int(name)) > 2 and descriptor != keep:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def _say(text: str) -> None:
    print(f"hvdft: {text}", file=sys.stderr, flush=True)


class _Shim:
    def __init__(self, channel: Channel, agent: int) -> None:
        self._channel: Channel | None = channel  # None: there is no agent
        self._agent_pid = agent
        self._agent: int | None = os.pidfd_open(agent)  # None: it has ended
        self._beats: Beats | None = None  # of the agent
        self._facts: Any = None  # what it has counted last
        self._relay = OutputRelay()
        self._children = Children(self._relay, self._report)
        self._job: JobDirectory | None = None
        self._reattach_socket: ReattachSocket | None = None
        self._rank, self._host = 0, ""
        self._launcher: LauncherLine | None = None
        self._silence_seconds = _NEVER  # so long the launcher may be out of reach
        self._keep_seconds: float | None = None  # so long it waits for a next agent; None: not
        self._over = False
        self._files_stay = False
        # The times are time.monotonic()'s.
        self._limit: tuple[float, str] | None = None  # and what to say
        self._reattached_by = _NEVER
        self._warn_at = _NEVER
        # SIGCHLD writes to this pipe: it tells of orphans too, which have no pidfd of ours.
        self._deaths, alarm = os.pipe()
        os.set_blocking(self._deaths, False)
        os.set_blocking(alarm, False)
        signal.set_wakeup_fd(alarm, warn_on_full_buffer=False)
        self._drills: set[int] = set()
        for number in (signal.SIGCHLD, *_DRILLS):
            signal.signal(number, lambda number, frame: None)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    def run(self) -> None:
        """Follows agents' orders until the job is over or nobody comes, then ends everything."""
        try:
            while not self._over:
                self._one_round()
        finally:
            self._children.end()
            self._relay.flush()
            if self._job is not None:
                self._job.leave(files_stay=self._files_stay)
            if self._launcher is not None:
                self._launcher.close()
            mpi_files.sweep()  # an agent that was killed in MPI_Init may have left one

    def _one_round(self) -> None:
        readers, writers = self._relay.waits_for()
        if self._launcher is not None:
            reading, writing = self._launcher.waits_for()
            readers, writers = readers + reading, writers + writing
        sources = [self._channel, self._children.taken, self._reattach_socket]
        readers += [self._deaths, *(source.fileno() for source in sources if source is not None)]
        reading, writing, _ = select.select(readers, writers, [], self._seconds_left())
        ready = {*reading, *writing}
        self._check_deadlines()
        self._relay.move()
        if self._deaths in ready:
            with contextlib.suppress(BlockingIOError):
                self._drills |= _DRILLS & set(os.read(self._deaths, 4096))
            self._children.reap()
        while self._drills:
            strike(self._drills.pop(), self._agent_pid)
        if (taken := self._children.taken) is not None and taken.fileno() in ready:
            self._children.hear_of_taken()
        if self._channel is not None and self._channel.fileno() in ready:
            self._hear_agent(self._channel)
        if self._reattach_socket is not None and self._reattach_socket.fileno() in ready:
            self._hear_new_agent(self._reattach_socket)
        if self._launcher is not None:
            self._hear_launcher(self._launcher, ready)

    # -------------------------------------------------------------- time

    def _seconds_left(self) -> float | None:
        deadlines = [
            self._reattached_by,
            self._warn_at,
            self._relay.lost_at,
            *([self._limit[0]] if self._limit else []),
            *([self._launcher.look_at, self._launcher_lost_at] if self._launcher else []),
            *([self._beats.look_at] if self._beats else []),
        ]
        first = min(deadlines)
        return None if first == _NEVER else max(0.0, first - time.monotonic())

    @property
    def _launcher_lost_at(self) -> float:
        launcher = self._launcher
        if launcher is None or launcher.silent_since is None or not launcher.known:
            return _NEVER
        return launcher.silent_since + self._silence_seconds

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        if self._limit and self._limit[0] <= now:
            text, self._limit = self._limit[1], None
            self._kill_agent(text)
        if self._beats and self._beats.is_silent(now):
            self._beats.stop()
            self._kill_agent(
                f"the agent of rank {self._rank} (pid {self._agent_pid}) is stopped: it has not "
                "answered for the time of HOROVOD_FT_LEASE_SECONDS; killed"
            )
        if self._relay.lost_at <= now:
            self._relay.give_up()
        if self._warn_at <= now:
            self._warn_at = _NEVER
            self._warn_of_launcher()
        if self._reattached_by <= now or (self._keep_seconds and self._launcher_lost_at <= now):
            self._end_agent()
            self._over = self._files_stay = True

    def _kill_agent(self, why: str) -> None:
        _say(why)
        if self._agent is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._agent, signal.SIGKILL)  # the socket's end tells us

    # -------------------------------------------------------------- agents

    def _hear_agent(self, agent: Channel) -> None:
        messages = agent.receive()
        for message in messages or ():
            self._follow(message)
        if messages is None:
            self._channel = None
            self._limit = self._beats = self._facts = None
            if self._keep_seconds is None or self._launcher is None or not self._launcher.known:
                self._over = True
                return
            self._relay.detach()
            self._reattached_by = time.monotonic() + self._keep_seconds
            self._launcher.tell(orphaned=True)

    def _follow(self, message: Message) -> None:
        do = message["do"]
        if do == "start":
            self._children.start(message, self._job.path if self._job else None)
        elif do == "go":
            self._children.go()
        elif do == "kill":
            self._children.kill(message["name"], message["signal"])
        elif do == "signal":
            self._children.signal(message["name"], message["signal"])
        elif do in ("note", "interrupted"):
            if self._launcher:
                self._launcher.send({do: message[do]})
        else:
            self._follow_agents(message)

    def _follow_agents(self, message: Message) -> None:
        """Follows an order about the job, or about the agent itself."""
        do = message["do"]
        if do == "beat":
            self._hear_beat(message["facts"])
        elif do == "attend":
            self._attend(message)
        elif do == "job":
            self._enter_job(message["dir"])
        elif do == "keep":
            self._keep_seconds = message["seconds"]
        elif do == "release":
            self._keep_seconds = self._beats = None
            if self._launcher:
                self._launcher.tell(orphaned=False, exit_code=message["exit_code"])
        elif do == "end":
            self._over = True
        elif do == "limit":
            seconds = message["seconds"]
            self._limit = seconds and (time.monotonic() + seconds, message["text"])
            if self._beats:
                self._beats.stop()  # it is in MPI, which lets Python do nothing else

    def _enter_job(self, directory: str) -> None:
        try:
            self._job = JobDirectory.join(directory)
        except HvdFtError:  # it has ended while we started in the place of another shim
            self._over = True
            return
        self._reattach_socket = ReattachSocket(directory, self._rank)

    def _hear_beat(self, facts: Any) -> None:
        self._facts = facts
        if self._beats:
            self._beats.heard(time.monotonic())
        self._report({"report": "beat"})

    def _attend(self, order: Message) -> None:
        self._rank = order["rank"]
        self._beats = Beats(order["lease"])
        self._silence_seconds = order["host_timeout"] + order["lease"]
        self._host = order["host"]
        if order["launcher"] is not None:
            self._connect(order)
            self._warn_at = time.monotonic() + _WARN_SECONDS

    def _connect(self, order: Message) -> None:
        if self._launcher is not None:
            self._launcher.close()
        self._launcher = LauncherLine(
            order["launcher"],
            self._rank,
            self._host,
            order["generation"],
            order["lease"],
            known=order["generation"] > 0,  # it has been there, or it could not start this agent
        )

    def _warn_of_launcher(self) -> None:
        assert self._launcher is not None
        if self._launcher.silent_since is not None:
            _say(
                f"rank {self._rank} cannot reach the launcher at {self._launcher.place} "
                f"({self._launcher.problem}): if an agent dies the job ends; let that host name "
                "lead to the host where hvdft run was started"
            )

    def _hear_new_agent(self, reattach_socket: ReattachSocket) -> None:
        received = reattach_socket.receive()
        if received is None:
            return
        connection, order, streams = received
        os.close(streams[0])
        # After `release` the job is over, and before `keep` there is nothing to take over.
        newest = self._launcher.generation if self._launcher else 0
        if self._keep_seconds is None or order["generation"] <= newest:
            connection.close()
            for stream in streams[1:]:
                os.close(stream)
            return
        self._end_agent()
        self._agent_pid = peer_of(connection).pid
        self._agent = os.pidfd_open(self._agent_pid)
        self._channel = Channel(connection)
        self._reattached_by = _NEVER
        self._beats = Beats(order["lease"])
        if self._launcher and order["launcher"] == self._launcher.address:
            self._launcher.tell(orphaned=False, generation=order["generation"])
        else:
            self._connect(order)  # the job is resumed
        self._relay.attach(streams[1:])
        self._report(self._children.found())

    def _end_agent(self) -> None:
        """Sees to it that an older agent, if it still lives, touches the arenas no more."""
        if self._agent is None:
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._agent, signal.SIGKILL)
        select.select([self._agent], [], [], _DEATH_SECONDS)
        os.close(self._agent)
        self._agent = None
        if self._channel is not None:
            self._channel.close()  # not before: it would take us for dead, and start another

    def _report(self, message: Message) -> None:
        # Of the agent's death we learn by the end of its socket.
        if self._channel is not None:
            with contextlib.suppress(OSError):
                self._channel.send(message)

    # -------------------------------------------------------------- launcher

    def _hear_launcher(self, launcher: LauncherLine, ready: set[int]) -> None:
        for order in launcher.move(ready):
            if "ask" in order:
                launcher.send({"answer": order["ask"], "facts": self._facts})
            elif "interrupt" in order:
                self._report({"report": "interrupt"})
            elif "stop" in order:
                self._report({"report": "stop", "signal": order["stop"]})
            elif "note" in order:
                self._report({"report": "note", "note": order["note"]})
            elif "over" in order:
                self._end_agent()
                self._over = True
                self._files_stay = order["files_stay"]
        if launcher.is_dead and not self._over:
            self._end_agent()  # or it might hold the job's directory when we leave
            self._over = True


__all__ = ["WORKER", "live"]
