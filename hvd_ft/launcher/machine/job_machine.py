"""The state machine that decides what becomes of a job, from its first mpirun to its end. Pure.

Events come in, actions go out. Its parts are one thing each: who is at the life-lines
(shim_roll.py), which hosts answer (host_watch.py), who has which place (job_members.py), whether
agents begin (job_generation.py), what the record says (job_record.py), what signals do
(asked_end.py), whether mpirun would not end (mpirun_rule.py), what the end is (ending.py). This
machine knows in which phase the job is. job_driver.py waits for the events and carries out the
actions in order.

| phase | ends when | next |
|---|---|---|
| NEW | the job begins, or is resumed | PUBLISHING or REACHING |
| REACHING | the hosts of a resumed job were probed | AWAITING |
| PUBLISHING | the job's record has the next generation | RUNNING; AWAITING if a host is silent |
| RUNNING | mpirun has ended | HEARING; ENDED if hosts are given up, or another launcher leads |
| HEARING | a shim has said that it has lost its agent | AWAITING |
| | all have left, or the exit code is known | EXPLAINING or ENDED |
| AWAITING | agents can be started on all hosts | PUBLISHING |
| | a host is given up | ENDED |
| EXPLAINING | it is known why no agent has begun | ENDED |
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence

from hvd_ft.job.lifeline_messages import (
    AgentLost,
    Answer,
    FlightPart,
    FlightWanted,
    ForReport,
    FromShim,
    Interrupted,
    Lease,
    Note,
    Over,
    ShimStatus,
)
from hvd_ft.job.page_messages import Kill
from hvd_ft.job.settings import Settings
from hvd_ft.launcher.machine.actions import Action, Actions, KillMpirun, Send, StartAgents
from hvd_ft.launcher.machine.asked_end import AskedEnd, drain_seconds
from hvd_ft.launcher.machine.ending import Ending
from hvd_ft.launcher.machine.flight_recorder import ASKED, FlightRecorder
from hvd_ft.launcher.machine.generations import Again, GenerationPolicy, NotYet, why_again
from hvd_ft.launcher.machine.host_reach import HostReach
from hvd_ft.launcher.machine.host_watch import GiveUp, NewAgents
from hvd_ft.launcher.machine.job_facts import JobFacts
from hvd_ft.launcher.machine.job_generation import JobGeneration
from hvd_ft.launcher.machine.job_members import Done, JobMembers
from hvd_ft.launcher.machine.job_record import JobRecord
from hvd_ft.launcher.machine.mpirun_rule import MpirunRule
from hvd_ft.launcher.machine.page_rule import PageRule
from hvd_ft.launcher.machine.phase import Phase
from hvd_ft.launcher.machine.seen import HostChange, MpirunSeen, WorkersSeen
from hvd_ft.launcher.machine.shim_roll import ShimRoll
from hvd_ft.native.types import Left

TICK_SECONDS = 0.25
# When an agent has died Hydra mostly ends all others, and itself, at once.
HYDRA_LIMIT_SECONDS = 0.5
HEAR_LIMIT_SECONDS = 5.0  # limit for shims to report that they have lost their agents


class JobMachine:
    """The machine for one job. Times are seconds on any steady clock.

    Args:
        facts: of the job.
        settings: the limits.
        now: the time.

    Attributes:
        phase: in which the job is.
        page: what the status page shows of links.
    """

    def __init__(self, facts: JobFacts, settings: Settings, now: float) -> None:
        self._facts = facts
        self._now = now
        self._out = out = Actions()
        self._roll = ShimRoll(out)
        self._record = JobRecord(facts, settings.host_timeout_seconds, out)
        self._members = JobMembers(facts, settings, self._roll, out, now)
        self._hosts = self._members.host_watch()
        self.page = PageRule(self._roll, self._hosts, out)
        self._reach = HostReach(out)
        self._agents = JobGeneration(facts, settings, self._roll, out, now)
        self._policy = GenerationPolicy(settings)
        self._mpirun_rule = MpirunRule(drain_seconds(settings), settings.lease_seconds, out)
        self._asked = AskedEnd(settings, facts.size, self._roll, out)
        self._ending = Ending(facts, out)
        self._flight = FlightRecorder(facts.records, facts.size, self._roll, out, pid=facts.pid)
        self._workers = WorkersSeen()
        self._tick_at = now
        self._begun_at = now  # this phase
        self._number_is_used = False  # the generation's, by an mpirun of this launcher
        self.phase = Phase.NEW

    @property
    def generation(self) -> int:
        """The number of the present agents, or of the next ones."""
        return self._agents.number

    @property
    def deposed(self) -> bool:
        """Whether another launcher has taken the job over."""
        return self._record.deposed

    @property
    def deadline(self) -> float:
        """When `time_passed` has to be called."""
        others = (self._asked.deadline, self._record.again_at, self._flight.deadline)
        return min(self._tick_at, *others)

    @property
    def may_change(self) -> bool:
        """Whether the job could get other hosts now: there is state to continue with."""
        idle = self._ending.resizes or self._agents.why_ended
        acts = self.phase is Phase.RUNNING and self._record.holds(self._now)
        return acts and not idle and self._workers.train

    @property
    def all_have_begun(self) -> bool:
        """Whether nobody needs to know any more how many workers have begun."""
        return self._agents.progress.over

    # -------------------------------------------------------------- events

    def begin(self, now: float) -> list[Action]:
        """The job begins, or is resumed."""
        self._now = now
        if self.phase is not Phase.NEW:
            return []
        self._members.begin()
        if self._facts.resume and self._facts.replaces:
            self._begin_phase(Phase.REACHING)
            self._go_on()
        else:
            self._publish()
        return self._out.take()

    def published(self, done: bool, now: float) -> list[Action]:
        """The job's record has what `Publish` said, or has not."""
        self._now = now
        if self.phase is not Phase.PUBLISHING:
            return []
        if self._record.published(done, self._members.members, now):
            if self._hosts.any_silent:  # by now: it may have taken long
                self._begin_phase(Phase.AWAITING)
            else:
                self._run()
        self._go_on()
        return self._out.take()

    def leads(self, until: float, deposed: bool, now: float) -> list[Action]:
        """The leadership of this launcher was renewed, or lost.

        Args:
            until: when it ends unless it is renewed.
            deposed: whether another launcher has taken the job over.
            now: the time.
        """
        self._now = now
        self._record.leads(until, deposed)
        if deposed and self.phase is Phase.RUNNING:
            self._asked.mpirun_ended()  # the shims are the other launcher's
            self._out.add(KillMpirun())
        self._go_on()
        return self._out.take()

    def said(self, line: int, message: FromShim, now: float) -> list[Action]:
        """A shim has said something.

        Args:
            line: the number of its life-line.
            message: the message.
            now: the time, not before it was received.
        """
        self._now = now
        shim = self._roll.shim(line)
        match message:
            case ShimStatus():
                self._hear_status(line, message)
            case Answer(number) if shim:
                self._hosts.answered(shim.host, message)
                self._members.leads = self._record.holds(now)
                if self._members.grants(shim, now):
                    self._out.add(Send(line, Lease(number)))
            case Interrupted() if shim:
                self._roll.interrupted.add(shim.rank)
                self._asked.interrupted()
            case AgentLost(lack) if shim:
                self._lose_agent(shim, lack)
            case ForReport(note) if shim:
                self._roll.tell_rank_0(Note(note))
            case FlightWanted(kind, text) if shim:
                self._flight.wanted(kind, text, now)
            case FlightPart(number, part) if shim:
                self._flight.part(shim.rank, number, part, now)
        self._go_on()
        return self._out.take()

    def line_ended(self, line: int, now: float, *, hung_up: bool) -> list[Action]:
        """A life-line has ended.

        Args:
            line: its number.
            now: the time.
            hung_up: whether the shim has ended it; else the network, or an error.
        """
        self._now = now
        self._roll.ended(line, hung_up=hung_up)
        self._go_on()
        return self._out.take()

    def probed(self, host: str, reason: str, now: float) -> list[Action]:
        """A host was probed.

        Args:
            host: its name.
            reason: why it cannot be reached; "": it can.
            now: the time.
        """
        self._now = now
        self._members.probed(host, reason)
        self._agents.probed(host, reason)
        self._reach.probed(host, reason)
        self._go_on()
        return self._out.take()

    def signalled(self, number: signal.Signals, now: float) -> list[Action]:
        """This process has received a signal that ends the job."""
        self._now = now
        runs = self.phase is Phase.RUNNING and not self._record.deposed
        self._asked.asked(number, now, runs=runs)
        self._go_on()
        return self._out.take()

    def record_asked(self, now: float) -> list[Action]:
        """The user wants a flight record."""
        self._now = now
        if self.phase is not Phase.ENDED:
            self._flight.wanted(ASKED, "the user has asked for it (SIGUSR2)", now)
        return self._out.take()

    def kill_asked(self, kill: Kill, now: float) -> list[Action]:
        """Somebody wants a rank's worker to be killed, on the status page."""
        self._now = now
        over = self._asked.received or self._roll.exit_code is not None or self._record.deposed
        self.page.kill(kill, over=bool(over) or self.phase is Phase.ENDED)
        return self._out.take()

    def mpirun_ended(self, code: int, lines: Sequence[str], now: float) -> list[Action]:
        """The present mpirun has ended; all that had arrived before was given as events before.

        Args:
            code: its exit code, negative: the signal that killed it.
            lines: the last that it has printed, if it did not start the agents.
            now: the time.
        """
        self._now = now
        self._flight.end(now)
        self._agents.ended(code, lines)
        self._asked.mpirun_ended()
        self._begin_phase(Phase.HEARING)
        self._look_at_hosts()
        self._go_on()
        return self._out.take()

    def change_due(self, change: HostChange, left: Mapping[int, Left], now: float) -> list[Action]:
        """The job is to get other hosts; given while `may_change`.

        Args:
            change: what is to change.
            left: of each rank, whether it has left the running job.
            now: the time.
        """
        self._now = now
        self._members.leads = self._record.holds(now)
        match self._members.change(change, left, self._hosts):
            case Done.YES:
                self._agents.kill(change.why, counts=False)
            case Done.NO:
                self._out.say(
                    f"{change.why}: continuing with {change.size} ranks from the next step boundary"
                )
                self._ending.resizes = True
                self._asked.preempt(now)
        return self._out.take()

    def time_passed(self, workers: WorkersSeen, mpirun: MpirunSeen, now: float) -> list[Action]:
        """Time has passed; to be called by `deadline`.

        Args:
            workers: what is known of the job's workers on this host.
            mpirun: the present one.
            now: the time.
        """
        self._now, self._workers = now, workers
        self._tick_at = now + TICK_SECONDS
        if why := self._why_no_agents():
            self._out.say(why)
            self._end_before_agents()
        self._asked.time_passed(now)
        self._flight.look(now)
        self._look_at_hosts()
        if self.phase is Phase.RUNNING:
            self._look_at_mpirun(mpirun)
            self._look_at_agents()
        if self.phase is Phase.AWAITING:
            self._reach.try_again()
        self._go_on()
        return self._out.take()

    # -------------------------------------------------------------- phases

    def _begin_phase(self, phase: Phase) -> None:
        self.phase, self._begun_at = phase, self._now
        self._reach.begin()

    def _go_on(self) -> None:
        """Does what the last event allows."""
        phase, asked = self.phase, bool(self._asked.received)
        if self._record.deposed and phase not in (Phase.RUNNING, Phase.ENDED):
            self._end_with("another hvdft run has taken the job over, so this one ends")
        elif asked and phase in (Phase.NEW, Phase.REACHING, Phase.AWAITING):
            self._end()
        elif asked and phase is Phase.PUBLISHING:
            self._end_before_agents()
        elif phase is Phase.REACHING:
            self._reach_hosts()
        elif phase is Phase.HEARING:
            self._judge()
        elif phase is Phase.AWAITING:
            self._await_hosts()
        elif phase is Phase.EXPLAINING and (asked or self._agents.knows):
            self._ending.no_start = self._agents.describe_failure()
            self._end_without_start()

    def _reach_hosts(self) -> None:
        found = self._reach.ask([place.host for place in self._members.members.places])
        if None not in found.values():
            self._members.gone({host: why for host, why in found.items() if why})
            self._begin_phase(Phase.AWAITING)
            self._await_hosts()

    def _publish(self) -> None:
        self._begin_phase(Phase.PUBLISHING)
        if self._facts.led:
            self._record.publish(self.generation, self._members.members, self._now)
        else:
            self._run()

    def _why_no_agents(self) -> str:
        """Returns why no agents can be started, after the limit for that; "" before."""
        if self.phase is Phase.PUBLISHING:
            return self._record.look(self._now)
        return self._record.lapsed(self._now) if self.phase is Phase.AWAITING else ""

    def _end_before_agents(self) -> None:
        self._ending.files_stay = self.generation > 0 and not self._asked.received
        self._agents.code = 1
        self._end()

    def _run(self) -> None:
        self._begin_phase(Phase.RUNNING)
        self._hosts.begin(self.generation)
        self._mpirun_rule.begin()
        self._members.new_generation(self.generation)
        self._number_is_used = True
        self._ending.begin()
        members, limit = self._members.members, self._members.start_limit
        self._agents.begin(members.hosts if self._facts.hosts else (), self._now, limit)
        self._out.add(StartAgents(self.generation, members, self._members.act_lease))

    def _judge(self) -> None:
        """Determines whether the job has ended with its mpirun."""
        over = bool(self._asked.received) or self._roll.exit_code is not None
        counts = self._agents.counts and not self._hosts.lost_one
        verdict = self._policy.ended(self._roll.shims, self._now, over=over, counts=counts)
        if isinstance(verdict, NotYet):
            if self._now - self._begun_at >= HEAR_LIMIT_SECONDS:
                self._end_with("the job's agents live on without their mpirun; the job was ended")
        elif isinstance(verdict, Again):
            self._begin_phase(Phase.AWAITING)
            self._await_hosts()
        elif verdict.message or self._ending.no_start:
            self._end_without_start(verdict.message)
        elif self._agents.code == 0 or self._asked.received or self._roll.hosts:
            self._end()
        else:
            self._begin_phase(Phase.EXPLAINING)
            self._agents.find_out()
            self._go_on()

    def _end_without_start(self, message: str = "") -> None:
        """Ends a job whose agents have not begun; the files of a resumed one are as they were."""
        message = message or self._ending.no_start
        resumes = self._facts.resume and self.generation == self._facts.generation
        if resumes and not self._asked.received:
            self._out.say(message or self._agents.describe_end())
            message = self._ending.not_resumed()
        self._end_with(message)

    def _await_hosts(self) -> None:
        """Starts the next generation as soon as agents can be started on all hosts."""
        several = bool(self._facts.hosts)
        verdict = self._reach.look(self._hosts, self._members) if several else True
        if isinstance(verdict, GiveUp):
            self._end_with(self._ending.give_up(verdict))
        elif verdict and not self._hosts.any_silent and not self._members.any_gone:
            self._begin_next()

    def _begin_next(self) -> None:
        if self._number_is_used:
            self._agents.number += 1
            self._number_is_used = False
            why = self._agents.why_ended or why_again(self._roll.shims, self._agents.code)
            self._out.say(f"{why}; starting generation {self.generation} of its agents")
        self._publish()

    # -------------------------------------------------------------- what is looked at

    def _hear_status(self, line: int, shim: ShimStatus) -> None:
        if self._members.admits(shim):
            before = self._roll.shim(line)
            self._roll.note(line, shim)
            if before and before.generation < shim.generation == self.generation:
                self._asked.agent_came(line)
            self._hosts.connected(shim.host, self._now)
            self._members.begun(shim.rank)
            lost = shim.orphaned and shim.generation == self.generation
            if lost and self.phase is Phase.RUNNING:  # whether or not mpirun has noticed
                self._asked.kill_by(self._now + HYDRA_LIMIT_SECONDS)
        else:
            self._roll.turned_away(line)
            self._out.add(Send(line, Over(files_stay=False)))

    def _lose_agent(self, shim: ShimStatus, lack: str) -> None:
        """An agent has died before the job began for it, maybe with all others."""
        ends = bool(self._asked.received or self._agents.why_ended)
        if self.phase is Phase.RUNNING and shim.generation == self.generation and not ends:
            if self._agents.loses():
                why = f", and the kernel has {lack}" if lack else ""
                self._out.say(f"the agent of rank {shim.rank} has died before it began{why}")
            self._asked.kill_by(self._now + HYDRA_LIMIT_SECONDS)

    def _look_at_hosts(self) -> None:
        self._members.leads = self._record.holds(self._now)
        if self._roll.exit_code is not None:
            return  # hosts whose shims end with the job are not lost
        if self._asked.received:
            self._hosts.look(self._now)  # whoever is lost is not replaced for a job that ends
            return
        verdict = self._members.look(self._hosts, self._now)
        if verdict is None:
            return
        if self.phase in (Phase.HEARING, Phase.AWAITING, Phase.PUBLISHING):
            if isinstance(verdict, GiveUp):
                self._end_with(self._ending.give_up(verdict))
        elif self.phase is Phase.RUNNING and not self._agents.why_ended:
            counts = isinstance(verdict, NewAgents) and verdict.counts  # a link is broken
            if not (counts and self._flight.awaits_link(verdict.why, self._now)):
                self._agents.kill(verdict.why, counts)

    def _look_at_mpirun(self, mpirun: MpirunSeen) -> None:
        over = self._roll.exit_code is not None
        lost = self._hosts.look_at_end(self._now) if over else None
        self._mpirun_rule.look(self._now, mpirun, lost, shims=bool(self._roll.shims))

    def _look_at_agents(self) -> None:
        if self._roll.exit_code is not None:
            return  # shims that have left are not missing
        agents = self._agents
        agents.look(self._now, any_silent=self._hosts.any_silent)
        if agents.why_ended:
            return
        why = agents.why_not
        if why and not self._members.gone(agents.unreachable, at_start=True):
            self._ending.no_start = why
            self._ending.lost = tuple(agents.unreachable)
            agents.kill(why, counts=False)
        else:
            agents.say_progress(self._workers, self._now)

    # -------------------------------------------------------------- the end

    def _end_with(self, message: str) -> None:
        if message:
            self._out.say(message)
        self._end(told=bool(message))

    def _end(self, *, told: bool = False) -> None:
        self._flight.end(self._now)
        self._begin_phase(Phase.ENDED)
        own, code = self._roll.exit_code, self._agents.code
        self._ending.come(self._asked, own, code, self._members.unfilled, told=told)
