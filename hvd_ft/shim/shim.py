"""The shim: the small process that starts an agent's processes and reaps them.

It has a session of its own, so it outlives an agent that is killed, even together with the agent's
session by Hydra: then the agent's socket ends. After an order to keep, the shim lets its processes
live and waits for an agent of the next generation (reattach.py). Otherwise it kills what it
started, removes the job directory if it is the last one there, and ends. It is a subreaper, so all
that its children leave behind, even in sessions of their own, comes to it.

An agent that is stopped it kills (served_agent.py). When the launcher's address refuses connections
(launcher_line.py), or the launcher reports that the job is over, the shim ends everything. A
launcher that cannot be reached may be alive: so the shim waits as long as the launcher would wait
for this host, then ends its processes, but keeps the job's files, from which the job can be
resumed. In a job with spare hosts, or one that may shrink, processes are stopped long before that
(fence.py).

A worker can be a former warm spare: then the spare's shim (spare_shim.py) is its parent and reaps
it, and this shim forwards orders and reports.

messages.py defines the messages between agent and shim.

A fork starts a shim, or a command line: `python -m hvd_ft.shim.shim FD AGENT_PIDFD AGENT_PID`.
"""

import contextlib
import os
import signal
import socket
import sys
from typing import NoReturn

import msgspec

from hvd_ft import native
from hvd_ft.errors import HvdFtError
from hvd_ft.job.directory import JobDirectory
from hvd_ft.job.drills import AGENT_DIES, AGENT_STOPS, MPIRUN_DIES
from hvd_ft.job.lifeline_messages import (
    AgentLost,
    Answer,
    Ask,
    FlightAsk,
    FlightPart,
    FlightWanted,
    ForReport,
    FromLauncher,
    FromShim,
    Interrupt,
    Interrupted,
    KillWorker,
    Lease,
    Note,
    Over,
    Preempt,
    ShimStatus,
    Stop,
)
from hvd_ft.mpi import leftover_files
from hvd_ft.mpi.launcher_processes import strike
from hvd_ft.shim import messages
from hvd_ft.shim.children import WORKER, Children
from hvd_ft.shim.fence import Fence
from hvd_ft.shim.launcher_line import LauncherLine
from hvd_ft.shim.messages import Order
from hvd_ft.shim.output_relay import OutputRelay
from hvd_ft.shim.reattach import NewAgent, ReattachSocket
from hvd_ft.shim.served_agent import ServedAgent
from hvd_ft.system.channel import Channel
from hvd_ft.system.event_loop import EventLoop
from hvd_ft.system.say import say
from hvd_ft.system.signal_pipe import SignalPipe

_WARN_SECONDS = 5.0  # limit for reaching the launcher for the first time, before a warning
_DRILLS = {AGENT_DIES, AGENT_STOPS, MPIRUN_DIES}
_NEVER = float("inf")


def live(end: socket.socket, agent: int, pid: int) -> NoReturn:
    """Runs the shim process; never returns to the agent's code.

    Args:
        end: of the channel to the agent.
        agent: its pidfd.
        pid: its process id, for messages and drills.
    """
    code = 1
    try:
        os.setsid()
        _close_descriptors(keep={end.fileno(), agent})
        native.become_subreaper()
        _Shim(Channel(end), agent, pid).run()
        code = 0
    except Exception as error:  # the agent only sees the socket end; this prints why
        say(f"the shim failed: {error!r}")
    finally:
        os._exit(code)


def _close_descriptors(keep: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if (descriptor := int(name)) > 2 and descriptor not in keep:
            with contextlib.suppress(OSError):
                os.close(descriptor)


class _Shim:
    def __init__(self, channel: Channel, agent: int, pid: int) -> None:
        self._loop = EventLoop()
        self._relay = OutputRelay(self._loop)
        self._agent = ServedAgent(self._loop, self._follow, self._on_agent_gone)
        self._fence = Fence(
            self._loop, self._agent.living, self._agent.stopped, self._agent.may_act
        )
        self._children = Children(self._loop, self._relay, self._agent.report)
        self._job: JobDirectory | None = None
        self._status = ShimStatus(0, "", 0, False)  # with which a line to a launcher begins
        self._launcher: LauncherLine | None = None
        self._silence_seconds = _NEVER  # how long the launcher may be out of reach
        self._keep_seconds: float | None = None  # for a next agent; None: no wait
        self._over = False
        self._files_stay = False
        self._warn = self._loop.timer(self._warn_of_launcher)
        self._reattached_by = self._loop.timer(self._leave_files)
        self._signals = SignalPipe([signal.SIGCHLD, *_DRILLS])
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        self._loop.watch(self._signals, self._on_signals)
        self._agent.serve(channel, pid, agent)

    def run(self) -> None:
        """Follows agents' orders until the job is over or no agent comes, then ends everything."""
        try:
            self._loop.run(until=lambda: self._over)
        finally:
            if self._launcher is not None and self._launcher.has_code:
                # The job is over: the launcher need not ask while this shim ends what is left.
                self._relay.flush()
                self._launcher.close()
            self._children.end()
            self._relay.flush(unfinished=True)
            self._relay.close()
            if self._job is not None:
                self._job.leave(files_stay=self._files_stay)
            if self._launcher is not None:
                self._launcher.close()
            leftover_files.sweep()  # an agent that was killed in MPI_Init may have left a file

    def _on_signals(self) -> None:
        numbers = self._signals.take()
        self._children.reap()
        for drill in numbers & _DRILLS:
            strike(drill, self._agent.pid)

    def _leave_files(self) -> None:
        """Ends although the job is not over: it can be resumed."""
        self._agent.end()
        self._over = self._files_stay = True

    # -------------------------------------------------------------- agents

    def _on_agent_gone(self) -> None:
        if self._keep_seconds is None or self._launcher is None or not self._launcher.known:
            if self._launcher is not None and not self._launcher.has_code:
                self._launcher.send(AgentLost(self._agent.lack()))
            self._over = True
            return
        self._relay.detach()
        self._reattached_by.set(self._loop.now() + self._keep_seconds)
        self._launcher.tell(orphaned=True, lack=self._agent.lack())

    def _follow(self, order: Order) -> None:
        match order:
            case messages.Start() | messages.Begin() if not self._fence.is_open:
                self._agent.hold(order)
            case messages.Start():
                self._children.start(order, self._job.path if self._job else None)
            case messages.Begin():
                self._children.go()
            case messages.Kill(name, number):
                self._children.kill(name, number)
            case messages.SignalOne(name, number):
                self._children.signal(name, number)
            case messages.Note(note):
                self._tell_launcher(ForReport(note))
            case messages.FlightWanted(kind, text):
                self._tell_launcher(FlightWanted(kind, text))
            case messages.FlightPart(number, part):
                self._tell_launcher(FlightPart(number, part))
            case messages.Interrupted():
                self._tell_launcher(Interrupted())
            case _:
                self._follow_agents(order)

    def _follow_agents(self, order: Order) -> None:
        """Follows an order about the job, or about the agent itself."""
        match order:
            case messages.Beat(facts):
                self._agent.beat(facts)
                self._children.look_at_memory()
                known = self._launcher is not None and self._launcher.known
                self._agent.report(messages.BeatHeard(known))
            case messages.Attend():
                self._attend(order)
            case messages.EnterJob(directory):
                self._enter_job(directory)
            case messages.Limit(seconds, text):
                self._agent.set_limit(seconds, text)
            case messages.Keep(seconds):
                self._keep_seconds = seconds
            case messages.Release(exit_code):
                self._keep_seconds = None
                self._agent.expect_no_beats()
                if self._launcher:
                    self._launcher.tell(orphaned=False, exit_code=exit_code)
            case messages.End():
                self._over = True

    def _enter_job(self, directory: str) -> None:
        try:
            self._job = JobDirectory.join(directory)
        except HvdFtError:  # it ended while this shim was replacing another one
            self._over = True
            return
        ReattachSocket(self._loop, directory, self._status.rank, self._hear_new_agent)

    def _attend(self, order: messages.Attend) -> None:
        self._status = ShimStatus(order.rank, order.host, 0, False, epoch=order.epoch)
        self._relay.shape(order.rank, order.prefix, order.output)
        self._fence.begin(order.act_lease)
        self._agent.expect_beats(order.rank, order.lease)
        self._silence_seconds = order.host_timeout + order.lease
        if order.launcher is not None:
            self._connect(order.launcher, order.generation, order.lease, known=order.known)
            self._warn.set(self._loop.now() + _WARN_SECONDS)

    def _hear_new_agent(self, agent: NewAgent) -> None:
        takeover = agent.takeover
        # After `release` the job is over, and before `keep` there is nothing to take over.
        newest = self._launcher.generation if self._launcher else 0
        if self._keep_seconds is None or takeover.generation <= newest:
            agent.refuse()
            return
        self._agent.end()
        self._agent.serve(Channel(agent.connection), agent.pid, agent.pidfd)
        self._reattached_by.clear()
        self._agent.expect_beats(self._status.rank, takeover.lease)
        if self._launcher and takeover.launcher in (None, self._launcher.address):
            self._launcher.tell(orphaned=False, generation=takeover.generation)
        elif takeover.launcher is not None:  # a new launcher: the job is resumed
            self._fence.begin(takeover.act_lease)
            self._connect(takeover.launcher, takeover.generation, takeover.lease, known=True)
        os.close(agent.streams[0])
        self._relay.attach(agent.streams[1:])
        self._fence.stop()
        self._agent.report(self._children.found())

    # -------------------------------------------------------------- launcher

    def _connect(
        self, launcher: str, generation: int, lease_seconds: float, *, known: bool
    ) -> None:
        if self._launcher is not None:
            self._launcher.close()
        self._launcher = LauncherLine(
            self._loop,
            launcher,
            msgspec.structs.replace(self._status, generation=generation),
            lease_seconds,
            known=known,
            silence_seconds=self._silence_seconds,
            on_order=self._follow_launcher,
            on_dead=self._on_launcher_dead,
            on_lost=self._on_launcher_lost,
        )

    def _warn_of_launcher(self) -> None:
        assert self._launcher is not None
        if self._launcher.silent_since is not None:
            say(
                f"rank {self._status.rank} cannot reach the launcher at {self._launcher.place} "
                f"({self._launcher.problem}): if an agent dies the job ends; let that host name "
                "lead to the host where hvdft run was started"
            )

    def _tell_launcher(self, message: FromShim) -> None:
        if self._launcher:
            self._launcher.send(message)

    def _follow_launcher(self, order: FromLauncher) -> None:
        assert self._launcher is not None
        match order:
            case Ask(number):
                self._fence.answered(number)
                self._launcher.send(Answer(number, self._agent.facts))
            case Lease(number):
                self._fence.granted(number)
            case Interrupt():
                self._agent.report(messages.Interrupt())
            case Preempt():
                self._agent.report(messages.PreemptAsked())
            case Stop(number):
                self._agent.report(messages.StopAsked(number))
            case Note(note):
                self._agent.report(messages.NoteTaken(note))
            case FlightAsk(number):
                self._agent.report(messages.FlightAsked(number))
            case KillWorker():
                self._children.kill(WORKER, signal.SIGKILL)
            case Over(files_stay):
                self._agent.end()
                self._over = True
                self._files_stay = files_stay

    def _on_launcher_dead(self) -> None:
        if not self._over:
            self._agent.end()  # or it might still hold the job's directory when this shim leaves
            self._over = True

    def _on_launcher_lost(self) -> None:
        """Gives up a launcher that has been out of reach for too long."""
        if self._keep_seconds:
            self._leave_files()
        else:  # nothing has begun, or the job is over
            self._on_launcher_dead()


__all__ = ["WORKER", "live"]

if __name__ == "__main__":
    _end, _agent, _pid = map(int, sys.argv[1:])
    live(socket.socket(fileno=_end), _agent, _pid)
