"""The agent's loop: feeds events to its supervisor, and carries out the resulting actions."""

import functools
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hvd_ft import native
from hvd_ft.agent import actions as do
from hvd_ft.agent.adopted_worker import reattach_verdict
from hvd_ft.agent.checkpoints import Preemption
from hvd_ft.agent.event_watch import JobNews
from hvd_ft.agent.flight_parts import FlightParts
from hvd_ft.agent.hang_rule import Stuck
from hvd_ft.agent.hook_commands import Commands
from hvd_ft.agent.job_context import JobContext
from hvd_ft.agent.rank_record import RankRecord
from hvd_ft.agent.report_writer import Journal
from hvd_ft.agent.shim_care import ShimCare
from hvd_ft.agent.slow_watch import SlowWatch
from hvd_ft.agent.stacks import StackReader
from hvd_ft.agent.stall_watch import StallWatch
from hvd_ft.agent.supervisor import Supervisor
from hvd_ft.errors import HvdFtError
from hvd_ft.job.drills import Drill, drill_environment
from hvd_ft.job.worker_environment import incarnation_environment
from hvd_ft.native.stacks import SIGNAL as STACKS_SIGNAL
from hvd_ft.native.types import EventType
from hvd_ft.shim import messages
from hvd_ft.shim.children import CHECKPOINTS, SPARES, WORKER
from hvd_ft.shim.client import ShimClient
from hvd_ft.system.caught_signals import catches
from hvd_ft.system.event_loop import EventLoop, Watch
from hvd_ft.system.say import say
from hvd_ft.system.stop_signals import ASK_SIGNAL, PREEMPTION, STOP_SIGNALS, StopSignals
from hvd_ft.system.wait_status import describe

EXIT_LOST = 1
_ASKED_CODES = {128 + number for number in STOP_SIGNALS}


@dataclass(frozen=True)
class Training:
    """Everything with which a worker is started.

    Attributes:
        argv: its command line.
        env: its environment, except for the incarnation and its drills.
        drills: deaths of workers, of any rank.
    """

    argv: Sequence[str]
    env: dict[str, str]
    drills: Sequence[Drill] = ()


class SupervisorLoop:
    """Keeps the worker of one rank running until the job ends.

    Args:
        context: this agent's place in the job.
        training: what the worker is started with.
        agent: this rank's side of the core, with its engine started.
        observer: of the job.
        shim: starts the worker.
        care: keeps the shim alive.
        commands: the user's hook commands.
        journal: writes the events of the whole job; None on all ranks but one.
        launchers: a pidfd for every process that the job depends on, with its name.
        signals: those that end the job.
        stacks: of the worker.
        flight_records: whether this agent takes part in some that nobody asks for.
        trace_ops: whether the report has the times of single ops.
    """

    def __init__(
        self,
        *,
        context: JobContext,
        training: Training,
        agent: native.Agent,
        observer: native.Observer,
        shim: ShimClient,
        care: ShimCare,
        commands: Commands,
        journal: Journal | None,
        launchers: Mapping[int, str],
        signals: StopSignals,
        stacks: StackReader,
        flight_records: bool,
        trace_ops: bool = False,
    ) -> None:
        self._context = context
        self._rank = context.rank
        self._training = training
        self._record = RankRecord(
            context.rank, agent, observer, nodes=context.nodes, journal=journal, send=shim.note
        )
        self._shim = shim
        self._care = care
        self._commands = commands
        self._launchers = launchers
        self._signals = signals
        self._stacks = stacks
        self._supervisor = Supervisor(context.rank, context.settings)
        self._loop = EventLoop()
        self._deadline = self._loop.timer(self._on_deadline)
        self._look = self._loop.timer(self._look_after)
        self._preemption = Preemption()
        self._grace = self._loop.timer(self._end_grace)
        self._stall = StallWatch(
            context.rank,
            context.settings,
            observer,
            stacks,
            ask=self._ask_for_stacks,
            warn=self._warn_of_stall,
            note=self._note_stacks,
        )
        self._flight = FlightParts(
            context,
            observer,
            stacks,
            ask=self._ask_for_stacks,
            send=self._send_part,
            volunteers=flight_records,
        )
        SlowWatch(context, observer, say=say, note=self._note_slow).follow(self._loop)
        if trace_ops:
            self._record.trace_ops(self._loop, late=context.launch.generation > 0)
        self.launcher_lost = False

    def run(self) -> int:
        """Runs the worker, and restarts it, until the job has ended.

        Returns:
            The job's exit code.
        """
        with self._loop as loop, self._record.news() as news:
            loop.watch(self._signals, self._on_signals)
            loop.watch(news, lambda: self._on_news(news))
            self._shim_watch = loop.watch(self._shim.channel, self._on_shim)
            loop.watch(self._stacks, self._on_stacks)
            self._care.begin()
            if self._context.launch.launcher and not self._launchers:
                os._exit(EXIT_LOST)  # they died before they were watched
            for pidfd, name in self._launchers.items():
                watch = loop.watch(pidfd)
                watch.set(functools.partial(self._on_launcher_died, watch, name))
            if self._context.launch.generation == 0:
                self._carry_out(self._supervisor.begin())
            else:
                self._take_over()
            while not self._may_leave():
                self._set_timers()
                loop.run_once()
        self._flight.finish()
        self.read_events()
        return self._record.stop_code

    def read_last(self) -> None:
        """Reads what all nodes have told when the job was over."""
        self.read_events()
        self._record.finish_trace()

    def _on_stacks(self) -> None:
        self._stall.on_readable()
        self._flight.on_readable()

    def _may_leave(self) -> bool:
        return self._supervisor.may_leave(self._loop.now(), hooks_running=self._commands.running)

    # -------------------------------------------------------------- actions

    def _carry_out(self, actions: Sequence[do.Action]) -> None:
        for action in actions:
            self._do(action)

    def _do(self, action: do.Action) -> None:
        match action:
            case do.StartWorker():
                self._start_worker(action)
            case do.WatchWorker():
                self._stall.begin()
            case do.BeginWorker():
                self._shim.go()
            case do.SignalWorker(number):
                self._shim.kill(WORKER, number)
            case do.NoteStarted() | do.NoteFailed() | do.NoteCause() | do.NoteDone():
                self._record.publish(action)
            case do.StopJob(code, message):
                self._record.stop_job(code, message)
            case do.RunHook(hook):
                self._commands.run(hook, self._hook_facts(action))
            case do.ReplaceShim():
                self._replace_shim()
            case do.Say(text):
                say(text)
            case do.SayWhyStopped():
                self._record.say_why_stopped()

    def _start_worker(self, action: do.StartWorker) -> None:
        training = self._training
        env = {
            **training.env,
            **incarnation_environment(training.env, action.incarnation),
            **drill_environment(training.drills, self._rank, action.incarnation),
        }
        self._shim.start(WORKER, list(training.argv), env, os.getcwd(), spare=action.spare)

    def _hook_facts(self, action: do.RunHook) -> dict[str, str]:
        """Returns the environment variables for a hook command."""
        return {
            "HOROVOD_FT_JOB": self._context.job,
            "HOROVOD_FT_RANK": str(self._rank),
            "HOROVOD_FT_INCARNATION": str(action.incarnation),
            "HOROVOD_FT_STEP": str(self._record.status.step),
            "HOROVOD_FT_TIME": f"{time.time():.3f}",
            **action.facts,
        }

    def _replace_shim(self) -> None:
        old = self._shim.pid
        try:
            why = self._care.replace()
        except HvdFtError as error:
            self._carry_out(self._supervisor.shim_not_replaced(str(error)))
            return
        self._shim_watch = self._loop.watch(self._shim.channel, self._on_shim)
        self._commands.forget()
        facts = replace(self._record.worker_facts(), why=why)
        self._carry_out(
            self._supervisor.shim_replaced(old, self._shim.pid, facts, self._loop.now())
        )

    # -------------------------------------------------------------- events

    def _take_over(self) -> None:
        """Continues where the agent of an earlier generation was killed."""
        past, status = self._record.past()
        found = self._shim.found.worker if self._shim.found else None
        verdict = reattach_verdict(found, status)
        facts = self._record.worker_facts()
        self._carry_out(self._supervisor.take_over(past, verdict, facts, self._loop.now()))

    def _on_shim(self) -> None:
        reports = self._shim.receive()
        for report in reports or ():
            self._on_report(report)
        if reports is None:
            self._shim_watch.end()
            self.read_events()
            self._carry_out(self._supervisor.shim_died())

    def _on_report(self, report: messages.Report) -> None:
        match report:
            case messages.BeatHeard(known):
                self._care.answered(launcher_known=known)
            case messages.Unkillable(pids):
                text = ", ".join(map(str, pids))
                say(f"rank {self._rank} left processes that SIGKILL does not end: {text}")
            case messages.Interrupt():
                self._interrupt()
                self._shim.interrupted()
            case messages.NoteTaken(note):
                self._record.take_note(note)
            case messages.PreemptAsked():
                self._preempt()
            case messages.FlightAsked(number):
                self._begin_part(number)
            case messages.StopAsked(number):
                self._carry_out(self._supervisor.stop(signal.Signals(number)))
            case messages.Started() | messages.Refused() | messages.Exited():
                self._on_process(report)

    def _on_process(self, report: messages.Started | messages.Refused | messages.Exited) -> None:
        if report.name == WORKER:
            self._on_worker(report)
        elif isinstance(report, messages.Started):
            pass
        elif report.name == SPARES:
            well = isinstance(report, messages.Exited) and report.status == 0
            if not well and not self._supervisor.over:
                say("spares are no longer prepared; the job continues without them")
        elif report.name == CHECKPOINTS:
            self._on_writer_ended(report)
        else:
            self._on_command_ended(report)

    def _on_writer_ended(self, report: messages.Refused | messages.Exited) -> None:
        if self._supervisor.over:
            return
        if isinstance(report, messages.Refused):
            say(self._care.writer_ended(report.error))
        else:
            say(self._care.writer_ended(describe(report.status)))

    def _preempt(self) -> None:
        """The job is to be checkpointed and to end, within the grace."""
        seconds = self._context.settings.grace_seconds
        if seconds is None:
            return
        self.read_events()  # a checkpoint that has begun before does not count
        if not self._preemption.ask():
            return
        self._grace.set(self._loop.now() + seconds)
        if self._rank == 0:
            say(f"preempted: a checkpoint is written, and the job ends within {seconds:g} s")
            self._shim.signal(CHECKPOINTS, ASK_SIGNAL)

    def _end_grace(self) -> None:
        text = "preempted: there is no checkpoint of this moment, as the grace is over"
        self._carry_out(self._supervisor.preempted(text))

    def _on_worker(self, report: messages.Started | messages.Refused | messages.Exited) -> None:
        supervisor = self._supervisor
        if isinstance(report, messages.Started):
            actions = supervisor.worker_started(report.pid, spare=report.spare)
        elif isinstance(report, messages.Refused):
            actions = supervisor.worker_refused(report.error)
        else:
            self.read_events()  # it may have attached just before
            facts = replace(self._record.worker_facts(), why=report.why)
            actions = supervisor.worker_ended(
                report.status, report.time_ns, facts, self._loop.now()
            )
        self._carry_out(actions)

    def _on_command_ended(self, report: messages.Refused | messages.Exited) -> None:
        if isinstance(report, messages.Exited):
            complaint = self._commands.ended(report.name, report.status)
        else:
            complaint = self._commands.ended(report.name, None, report.error)
        if complaint:
            say(f"rank {self._rank}: {complaint}")

    def _on_news(self, news: JobNews) -> None:
        news.take()
        self.read_events()
        if news.over:
            self._record_stop()
            hold = self._flight.seconds_left
            self._carry_out(self._supervisor.job_over(self._loop.now(), hold_seconds=hold))

    def read_events(self) -> None:
        """Reads the job's news, for the journal and about this rank."""
        supervisor = self._supervisor
        for event in self._record.new_events():
            if self._rank == 0 and self._preemption.is_done_by(event):
                self._carry_out(supervisor.preempted("preempted: the checkpoint is written"))
            if event.rank != self._rank:
                continue
            if event.type is EventType.ATTACHED:
                self._carry_out(supervisor.worker_attached(event.incarnation))
            elif event.type is EventType.JOINED:
                self._carry_out(
                    supervisor.worker_rejoined(event.incarnation, event.detail, event.time_ns)
                )

    def _on_signals(self) -> None:
        received = self._signals.received
        # Slurm may signal agents as well as Hydra, which passes the signal on to them.
        once = len(received) == 1 or (received and self._context.launch.shim_starter)
        if self._context.settings.grace_seconds and once and set(received) <= set(PREEMPTION):
            self._preempt()
            return
        for number in received:
            if number == signal.SIGINT:
                self._interrupt()
            self._carry_out(self._supervisor.stop(number))

    def _interrupt(self) -> None:
        self.read_events()  # it may have attached just before
        self._carry_out(self._supervisor.interrupt())

    def _on_launcher_died(self, watch: Watch, name: str) -> None:
        if self._context.launch.launcher:
            os._exit(EXIT_LOST)  # the shim keeps the worker alive, and hvdft run starts new agents
        watch.end()
        self._carry_out(self._supervisor.launcher_died(name))
        self.launcher_lost = True

    # -------------------------------------------------------------- time

    def _set_timers(self) -> None:
        supervisor = self._supervisor
        self._deadline.set(min(supervisor.deadline, supervisor.leave_at))
        looks = (self._care.look_at, self._stall.look_at, self._commands.look_at)
        self._look.set(min(*looks, self._flight.look_at))

    def _on_deadline(self) -> None:
        state = self._record.status.state
        self._carry_out(self._supervisor.time_passed(self._loop.now(), state))

    def _look_after(self) -> None:
        """Checks the shim, the worker and hook commands for silence, stalls and overrun limits."""
        now = self._loop.now()
        self._commands.kill_late()
        if self._care.look_at <= now and self._care.look():
            say(f"the shim of rank {self._rank} was stopped, so it was killed")
        if self._stall.look_at <= now:
            self._look_for_stall()
        self._flight.look()

    def _look_for_stall(self) -> None:
        stuck: Stuck | None = None
        if self._supervisor.watched and self._supervisor.pid:
            stuck = self._stall.look(self._supervisor.pid)
        else:
            self._stall.skip()
        if stuck:
            self._want_flight("stall", f"rank {self._rank} {stuck}")
            self._carry_out(self._supervisor.worker_stuck(stuck))

    def _ask_for_stacks(self) -> None:
        """Asks the worker to write its stacks, if it can: the signal would kill any other one."""
        if self._supervisor.pid and catches(self._supervisor.pid, STACKS_SIGNAL):
            self._shim.signal(WORKER, STACKS_SIGNAL)

    def _warn_of_stall(self, text: str) -> None:
        say(text)
        self._want_flight("stall", text)

    def _want_flight(self, kind: str, text: str) -> None:
        self._shim.want_flight(kind, text)  # the launcher knows whether there is to be one

    def _record_stop(self) -> None:
        """Contributes to a flight record if the job was stopped, unless by the user's signal."""
        stop = self._record.stop
        if not stop or stop[1] in _ASKED_CODES:
            return
        if stop[2] == self._rank:
            self._want_flight("stop", stop[0])
        if self._flight.volunteers:
            self._begin_part(0)

    def _send_part(self, number: int, part: dict[str, Any]) -> None:
        self._shim.flight_part(number, part)
        self._supervisor.stacks_written(self._loop.now())

    def _begin_part(self, number: int) -> None:
        """Begins this rank's part of a flight record."""
        self._flight.begin(number, self._supervisor.pid if self._supervisor.watched else None)

    def _note_stacks(self, text: str) -> None:
        self._record.note("STACKS", self._supervisor.incarnation, text)

    def _note_slow(self, rank: int, incarnation: int, text: str, more: Mapping[str, Any]) -> None:
        self._record.note("SLOW", incarnation, text, rank, more)
