"""Drives the launcher's machine: waits for its events, and carries out its actions.

docs/internals/driver.md has the contract. Nothing here waits for a disk, because this loop renews
the leases of all hosts: a directory on a network filesystem is used in another thread
(job_leader.py).
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from hvd_ft.job.directory import sweep_stale
from hvd_ft.job.lifeline import LifeLines
from hvd_ft.job.lifeline_messages import FromShim, Over
from hvd_ft.job.peer_file import PeerFile
from hvd_ft.job.processes import end_processes
from hvd_ft.launcher import reach
from hvd_ft.launcher.begin_facts import facts_of
from hvd_ft.launcher.flight_writer import FlightWriter
from hvd_ft.launcher.job import ResolvedJob, mpirun_command
from hvd_ft.launcher.job_leader import END_SECONDS, lead
from hvd_ft.launcher.job_sight import JobSight
from hvd_ft.launcher.machine import actions as do
from hvd_ft.launcher.machine.asked_end import drain_seconds
from hvd_ft.launcher.machine.job_machine import JobMachine
from hvd_ft.launcher.machine.seen import MpirunSeen
from hvd_ft.launcher.page_driver import PageDriver
from hvd_ft.launcher.shim_step import VARIABLE, ShimStep, start_step
from hvd_ft.launcher.watchers import Resizing, StatusPage
from hvd_ft.members.hosts import machine_file
from hvd_ft.members.membership import Membership
from hvd_ft.mpi import leftover_files
from hvd_ft.mpi.hydra_output import MpirunOutput
from hvd_ft.mpi.mpirun import Mpirun
from hvd_ft.system.apart import call_apart
from hvd_ft.system.event_loop import EventLoop
from hvd_ft.system.memory_file import memory_file
from hvd_ft.system.say import say
from hvd_ft.system.stop_signals import StopSignals

CLEAR_LIMIT_SECONDS = 15.0  # for shims to kill their workers and clear the job's files


class JobDriver:
    """Drives one job, from its first mpirun until nothing of it is left.

    Args:
        loop: the loop that runs everything here.
        resolved: the job.
        signals: the signals that this process has received.
        sight: reads the job's shared memory on this host.
        resizing: decides whether the job gets other hosts.
        page: shows the job on its status page; None: there is none.

    Raises:
        HvdFtError: the job cannot be started.
    """

    def __init__(
        self,
        loop: EventLoop,
        resolved: ResolvedJob,
        signals: StopSignals,
        sight: JobSight,
        resizing: Resizing | None,
        *,
        page: StatusPage | None = None,
    ) -> None:
        job, settings = resolved.job, resolved.settings
        self._loop = loop
        self._resolved = resolved
        self._signals = signals
        self._heeded = 0  # of them
        self._sight = sight
        self._resizing = resizing
        self._probes: dict[str, reach.Probe] = {}
        self._step: ShimStep | None = None
        self._events: deque[Callable[[], list[do.Action]]] = deque()
        self._ended: do.End | None = None
        self._flights = FlightWriter(loop, job.id, job.report)
        asked = loop.watch(signals, lambda: signals.received)  # so it is not readable any more
        with contextlib.ExitStack() as undo:  # what was begun, if the rest cannot be
            self._files = undo.enter_context(contextlib.ExitStack())
            ports = None if job.machine_file is None else settings.ports
            self._lines = LifeLines(loop, resolved.address, settings.lease_seconds, self, ports)
            undo.callback(self._lines.close)
            led = job.machine_file is not None
            self._leader = lead(loop, job, settings, signals) if led else None
            if self._leader:
                undo.callback(self._leader.end, resumable=job.resume)
                self._leader.on_renewed = self._on_renewed
                self._leader.on_published = self._on_published
            facts = facts_of(resolved, self._leader)
            self._output = MpirunOutput(loop, sight.takes_output)
            undo.pop_all()
        self._machine = JobMachine(facts, settings, loop.now())
        self._mpirun = Mpirun(loop, self._output)
        self._tick = loop.timer(self._on_time)
        asked.set(self._on_signal)
        self._page = PageDriver(
            loop,
            page,
            sight,
            kill=lambda kill: self._happens(self._machine.kill_asked, kill),
            links=self._machine.page.links,
        )

    def run(self) -> do.End:
        """Runs the job to its end."""
        if self._leader:
            self._on_renewed()
        self._on_signal()
        self._step = start_step(self._loop, self._resolved, lambda: bool(self._signals.received))
        self._happens(self._machine.begin)
        while self._ended is None:
            self._tick.set(self._machine.deadline)
            self._loop.run_once()
            if self._mpirun.has_ended:
                self._loop.run_once(0)  # what its shims have said before
                code = self._mpirun.wait()
                self._sight.look()
                self._happens(self._machine.mpirun_ended, code, self._output.kept)
        return self._ended

    # -------------------------------------------------------------- events

    def _happens(self, event: Callable[..., list[do.Action]], *what: object, **how: object) -> None:
        """Gives the machine an event once the actions of all earlier events are carried out."""
        self._events.append(functools.partial(event, *what, self._loop.now(), **how))
        if len(self._events) > 1:
            return
        while self._events:
            for action in self._events[0]():
                self._carry_out(action)
            self._events.popleft()

    def said(self, line: int, message: FromShim) -> None:
        """As `Listener.said`."""
        self._happens(self._machine.said, line, message)

    def line_ended(self, line: int, *, hung_up: bool) -> None:
        """As `Listener.line_ended`."""
        self._happens(self._machine.line_ended, line, hung_up=hung_up)

    def _on_signal(self) -> None:
        received = self._signals.received  # so it is not readable any more
        for number in received[self._heeded :]:
            self._happens(self._machine.signalled, number)
        self._heeded = len(received)
        while self._signals.noticed:
            self._signals.noticed.pop()
            self._happens(self._machine.record_asked)

    def _on_renewed(self) -> None:
        assert self._leader
        self._happens(self._machine.leads, self._leader.until, self._leader.deposed)

    def _on_published(self, done: bool) -> None:
        self._happens(self._machine.published, done)

    def _on_time(self) -> None:
        for host, probe in list(self._probes.items()):
            if (reason := probe.result()) is not None:
                self._probes.pop(host).close()
                self._happens(self._machine.probed, host, reason)
        self._sight.look()
        self._page.look()
        mpirun = MpirunSeen(self._mpirun.pid, bool(self._mpirun.stopped()))
        begun, train = not self._machine.all_have_begun, self._resizing is not None
        workers = self._sight.workers(begun=begun, train=train)
        self._happens(self._machine.time_passed, workers, mpirun)
        if self._resizing and self._machine.may_change:
            change = self._resizing.change(self._loop.now())
            if change:
                self._happens(self._machine.change_due, change, self._sight.left())

    # -------------------------------------------------------------- actions

    def _carry_out(self, action: do.Action) -> None:
        match action:
            case do.Say(text):
                say(text)
            case do.Send(line, message):
                self._lines.send(line, message)
            case do.EndLine(line):
                self._lines.end(line)
            case do.WriteFlight():
                self._flights.write(action)
            case do.AnswerPage(number, problem):
                self._page.answer(number, problem)
            case do.Publish(generation, members):
                assert self._leader
                self._leader.publish(generation, str(members))
            case do.StartAgents():
                self._start_agents(action)
            case do.KillMpirun():
                self._mpirun.kill()
            case do.ContinueMpirun():
                self._mpirun.let_continue()
            case do.Probe(host) if host not in self._probes:
                self._probes[host] = reach.Probe(host, self._resolved.environment)
            case do.HostsLeft() | do.HostsJoined():
                self._tell_resizing(action)
            case do.End():
                self._ended = action

    def _tell_resizing(self, change: do.HostsLeft | do.HostsJoined) -> None:
        if self._resizing is None:
            return
        if isinstance(change, do.HostsLeft):
            self._resizing.left(change.names, lost=change.lost)
        else:
            self._resizing.joined(change.hosts)

    def _start_agents(self, start: do.StartAgents) -> None:
        several = self._resolved.job.machine_file is not None
        environment = {
            **self._resolved.environment,
            "HOROVOD_FT_LAUNCHER": self._lines.address,
            "HOROVOD_FT_GENERATION": str(start.generation),
            "HOROVOD_FT_BEGUN": f"{time.time():.6f}",
            # Empty counts as unset: this process may run in a worker of another job.
            "HOROVOD_FT_MEMBERS": str(start.members) if several else "",
            "HOROVOD_FT_ACT_LEASE": f"{start.act_lease:.3f}" if start.act_lease else "",
            **({VARIABLE: self._step.name} if self._step else {}),
        }
        job = self._resolved.job
        if several and start.members.epoch:
            job = replace(
                job, hosts=start.members.hosts, machine_file=self._machines(start.members)
            )
        self._mpirun.start(mpirun_command(job, environment), environment)

    def _machines(self, members: Membership) -> str:
        self._files.close()  # of the generation before
        return self._files.enter_context(memory_file(machine_file(members.hosts)))

    # -------------------------------------------------------------- the end

    def clear(self) -> None:
        """Waits for the processes of the job to end, kills those that remain, removes files."""
        self._tick.clear()  # what follows may run the loop
        self._page.end()
        self._flights.finish()
        self._sight.close()
        self._mpirun.end()
        resumable = self._ended is not None and self._ended.files_stay
        deposed = self._machine.deposed
        self._lines.tell(Over(resumable or deposed))
        self._lines.close()  # on all nodes, shims that wait for agents end
        if self._step:
            self._step.close()
        for probe in self._probes.values():
            probe.close()
        self._files.close()
        job = self._resolved.job
        ours = self._mpirun.was_started and not deposed  # or it is another launcher's
        if ours:
            limit = CLEAR_LIMIT_SECONDS + drain_seconds(self._resolved.settings)
            end_processes(job.id, limit)
        if self._step:
            self._step.end()
        if ours:
            self._remove_files(job.id, resumable)
        if self._leader and not deposed:
            # A job of which this launcher has started nothing is as it was before.
            as_before = job.resume and not self._mpirun.was_started
            self._leader.end(resumable=resumable or as_before)
        self._output.drain()

    def _remove_files(self, job: str, resumable: bool) -> None:
        settings = self._resolved.settings
        if settings.shared_dir:
            with contextlib.suppress(OSError):  # one that does not answer
                remove = PeerFile(settings.shared_dir, job).remove
                call_apart(self._loop, remove, END_SECONDS, lambda: False)
        if not resumable:
            sweep_stale(settings.arena_dir, only=job)
        leftover_files.sweep()
