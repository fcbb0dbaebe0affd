"""The state machine that decides what becomes of a job, from its first mpirun to its end. Pure.

Events come in, actions go out. Its parts are one thing each: who is at the life-lines
(shim_roll.py), which hosts answer (host_watch.py), who has which place (job_members.py), what
signals do (asked_end.py), whether mpirun would not end (mpirun_rule.py), what the end is
(ending.py). This machine knows in which phase the job is. job_driver.py waits for the events and
carries out the actions in order.

| phase | ends when | next |
|---|---|---|
| NEW | the job begins, or is resumed | PUBLISHING or REACHING |
| REACHING | the hosts of a resumed job were probed | AWAITING |
| PUBLISHING | the job's record has the next generation | RUNNING |
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
from enum import Enum, auto

from hvd_ft.job.lifeline_messages import (
    Answer,
    ForReport,
    FromShim,
    Interrupted,
    Lease,
    Note,
    Over,
    ShimStatus,
)
from hvd_ft.job.settings import Settings
from hvd_ft.launcher.machine.actions import (
    Action,
    Actions,
    HostsJoined,
    HostsLeft,
    KillMpirun,
    Probe,
    Publish,
    Send,
    StartAgents,
)
from hvd_ft.launcher.machine.asked_end import AskedEnd, drain_seconds
from hvd_ft.launcher.machine.ending import Ending
from hvd_ft.launcher.machine.generations import Again, GenerationPolicy, NotYet, why_again
from hvd_ft.launcher.machine.host_watch import GiveUp, NewAgents
from hvd_ft.launcher.machine.job_facts import JobFacts
from hvd_ft.launcher.machine.job_members import JobMembers
from hvd_ft.launcher.machine.mpirun_rule import MpirunRule
from hvd_ft.launcher.machine.seen import HostChange, MpirunSeen, WorkersSeen
from hvd_ft.launcher.machine.shim_roll import ShimRoll
from hvd_ft.launcher.machine.start_progress import StartProgress
from hvd_ft.launcher.machine.start_watch import StartWatch
from hvd_ft.native.types import Left
from hvd_ft.system.wait_status import describe_code

TICK_SECONDS = 0.25
# When an agent has died Hydra mostly ends all others, and itself, at once.
HYDRA_LIMIT_SECONDS = 0.5
STARTS_IN_ADOPTION = 3  # attempts to start agents while shims wait for one
HEAR_LIMIT_SECONDS = 5.0  # limit for shims to report that they have lost their agents
PUBLISH_AGAIN_SECONDS = 0.5


class Phase(Enum):
    """What the machine waits for."""

    NEW = auto()
    REACHING = auto()
    PUBLISHING = auto()
    RUNNING = auto()
    HEARING = auto()
    AWAITING = auto()
    EXPLAINING = auto()
    ENDED = auto()


class JobMachine:
    """The machine for one job. Times are seconds on any steady clock.

    Args:
        facts: of the job.
        settings: the limits.
        now: the time.

    Attributes:
        phase: in which the job is.
        generation: of agents, the present or the next one.
        deposed: whether another launcher has taken the job over.
    """

    def __init__(self, facts: JobFacts, settings: Settings, now: float) -> None:
        self._facts = facts
        self._settings = settings
        self._out = Actions()
        self._now = now
        self.phase = Phase.NEW
        self.generation = facts.generation
        self.deposed = False
        self._roll = ShimRoll(self._out)
        self._members = JobMembers(facts, settings, self._roll, self._out, now)
        self._hosts = self._members.host_watch()
        self._asked = AskedEnd(settings, facts.size, self._roll, self._out)
        self._policy = GenerationPolicy(settings)
        drain = drain_seconds(settings)
        self._mpirun_rule = MpirunRule(drain, settings.lease_seconds, self._out)
        self._ending = Ending(facts, self._out)
        self._progress = StartProgress(facts.size, now)
        self._start = StartWatch((), now)
        self._workers = WorkersSeen()
        self._mpirun = MpirunSeen()
        self._leads_until = float("inf")
        self._published = facts.members  # or about to be
        self._begun_at = now  # this phase
        self._tick_at = now
        self._again_at = float("inf")  # when the record is tried again
        self._late_at = float("inf")  # when agents are late
        self._reached: dict[str, str | None] = {}  # hosts that are probed, and why not; None: wait
        self._code = 0  # of mpirun
        self._lines: Sequence[str] = ()  # the last that mpirun has said, if it did not start
        self._why_ended = ""  # mpirun, if this machine killed it
        self._counts = True  # whether its end counts as a failure of agents
        self._has_run = False  # any mpirun of this launcher

    @property
    def deadline(self) -> float:
        """When `time_passed` has to be called."""
        return min(self._tick_at, self._asked.deadline, self._again_at)

    @property
    def may_change(self) -> bool:
        """Whether the job could get other hosts now: there is state to go on with."""
        idle = self._ending.resizes or self._why_ended
        return self.phase is Phase.RUNNING and not idle and self._workers.train

    @property
    def all_have_begun(self) -> bool:
        """Whether nobody needs to know any more how many workers have begun."""
        return self._progress.over

    # -------------------------------------------------------------- events

    def begin(self, now: float) -> list[Action]:
        """The job begins, or is resumed."""
        self._now = now
        if self.phase is not Phase.NEW:
            return []
        self._members.begin()
        if self._facts.resume and self._facts.replaces:
            self._begin_phase(Phase.REACHING)
            self._probe([place.host for place in self._members.members.places])
        else:
            self._publish()
        return self._out.take()

    def published(self, done: bool, now: float) -> list[Action]:
        """The job's record has what `Publish` said, or has not."""
        self._now = now
        if self.phase is not Phase.PUBLISHING:
            return []
        if not done:
            self._again_at = now + PUBLISH_AGAIN_SECONDS
        elif self._published != self._members.members:  # a host was replaced meanwhile
            self._publish_members()
        else:
            self._run()
        return self._out.take()

    def leads(self, until: float, deposed: bool, now: float) -> list[Action]:
        """The leadership of this launcher was renewed, or lost.

        Args:
            until: when it ends unless it is renewed.
            deposed: whether another launcher has taken the job over.
            now: the time.
        """
        self._now, self._leads_until, self.deposed = now, until, deposed
        if deposed and self.phase is Phase.RUNNING:
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
                self._members.leads = self._holds()
                if self._members.grants(shim, now):
                    self._out.add(Send(line, Lease(number)))
            case Interrupted() if shim:
                self._roll.interrupted.add(shim.rank)
                self._asked.interrupted()
            case ForReport(note) if shim:
                self._roll.tell_rank_0(Note(note))
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
        self._start.probed(host, reason)
        if host in self._reached:
            self._reached[host] = reason
        self._go_on()
        return self._out.take()

    def signalled(self, number: signal.Signals, now: float) -> list[Action]:
        """This process has received a signal that ends the job."""
        self._now = now
        self._asked.asked(number, now, runs=self.phase is Phase.RUNNING)
        self._go_on()
        return self._out.take()

    def mpirun_ended(self, code: int, lines: Sequence[str], now: float) -> list[Action]:
        """The present mpirun has ended; all that had arrived before was given as events before.

        Args:
            code: its exit code, negative: the signal that killed it.
            lines: the last that it has printed, if it did not start the agents.
            now: the time.
        """
        self._now, self._code, self._lines = now, code, lines
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
        self._members.leads = self._holds()
        if not self._change_in_place(change, left):
            self._out.say(
                f"{change.why}: going on with {change.size} ranks from the next step boundary"
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
        if self.phase is Phase.ENDED:
            return []
        self._now, self._workers, self._mpirun = now, workers, mpirun
        self._tick_at = now + TICK_SECONDS
        if self.phase is Phase.PUBLISHING:
            self._look_at_record()
        self._asked.time_passed(now)
        self._look_at_hosts()
        if self.phase is Phase.RUNNING:
            self._look_at_mpirun()
            self._look_at_start()
        elif self.phase is Phase.AWAITING:  # those out of reach are tried again
            self._reached = {name: why for name, why in self._reached.items() if not why}
        self._go_on()
        return self._out.take()

    # -------------------------------------------------------------- phases

    def _begin_phase(self, phase: Phase) -> None:
        self.phase, self._begun_at, self._again_at = phase, self._now, float("inf")
        self._reached = {}

    def _go_on(self) -> None:
        """Does what the last event allows."""
        phase, asked = self.phase, bool(self._asked.received)
        if self.deposed and phase not in (Phase.RUNNING, Phase.ENDED):
            self._end_with("another hvdft run has taken the job over, so this one ends")
        elif asked and phase in (Phase.NEW, Phase.REACHING, Phase.AWAITING):
            self._end()
        elif asked and phase is Phase.PUBLISHING:
            self._end_before_agents()
        elif phase is Phase.REACHING and None not in self._reached.values():
            self._members.gone({host: why for host, why in self._reached.items() if why})
            self._begin_phase(Phase.AWAITING)
            self._await_hosts()
        elif phase is Phase.RUNNING and self._roll.lost_agents(self.generation):
            self._asked.kill_by(self._now + HYDRA_LIMIT_SECONDS)
        elif phase is Phase.HEARING:
            self._judge()
        elif phase is Phase.AWAITING:
            self._await_hosts()
        elif phase is Phase.EXPLAINING and (asked or self._start.knows):
            self._explain()

    def _publish(self) -> None:
        self._begin_phase(Phase.PUBLISHING)
        if self._facts.led:
            self._publish_members()
        else:
            self._run()

    def _publish_members(self) -> None:
        self._published = self._members.members
        self._out.add(Publish(self.generation, self._published))

    def _look_at_record(self) -> None:
        waited = self._now - self._begun_at
        if waited > self._settings.host_timeout_seconds:
            self._out.say(
                f"the record of job {self._facts.id} in HOROVOD_FT_SHARED_DIR could not be renewed "
                f"for {waited:.0f} s, so no agents are started and the job ends"
            )
            self._end_before_agents()
        elif self._now >= self._again_at:
            self._again_at = float("inf")
            self._publish_members()

    def _end_before_agents(self) -> None:
        self._ending.files_stay = self.generation > 0 and not self._asked.received
        self._code = 1
        self._end()

    def _run(self) -> None:
        self._begin_phase(Phase.RUNNING)
        members = self._members
        self._hosts.begin(self.generation)
        self._mpirun_rule.begin()
        members.new_generation(self.generation)
        self._has_run = True
        self._why_ended, self._counts = "", True
        hosts = members.members.hosts if self._facts.hosts else ()
        self._start = StartWatch(hosts, self._now, members.start_limit)
        self._late_at = self._now + self._settings.adoption_timeout_seconds / STARTS_IN_ADOPTION
        self._out.add(StartAgents(self.generation, members.members, members.act_lease))

    def _judge(self) -> None:
        """Determines whether the job has ended with its mpirun."""
        over = bool(self._asked.received) or self._roll.exit_code is not None
        counts = self._counts and not self._hosts.lost_one
        verdict = self._policy.ended(self._roll.shims, self._now, over=over, counts=counts)
        if isinstance(verdict, NotYet):
            if self._now - self._begun_at >= HEAR_LIMIT_SECONDS:
                self._end_with("the job's agents live on without their mpirun; the job was ended")
        elif isinstance(verdict, Again):
            self._begin_phase(Phase.AWAITING)
            self._await_hosts()
        elif verdict.message or self._ending.no_start:
            self._end_with(verdict.message or self._ending.no_start)
        elif self._code == 0 or self._asked.received or self._roll.hosts:
            self._end()
        else:
            self._begin_phase(Phase.EXPLAINING)
            self._out.add(*map(Probe, self._start.find_out()))
            if self._start.knows:
                self._explain()

    def _explain(self) -> None:
        """Says why an mpirun has failed whose agents were never heard of."""
        self._ending.no_start = self._start.why(self._facts.bootstrap)
        if not self._ending.no_start and self._lines:
            lines = "".join(f"\n    {line}" for line in self._lines)
            self._ending.no_start = (
                f"mpirun did not start the job's agents ({describe_code(self._code)}); it says:"
                f"{lines}"
            )
        self._end_with(self._ending.no_start)

    def _await_hosts(self) -> None:
        """Starts the next generation as soon as agents can be started on all hosts."""
        hosts, members = self._hosts, self._members
        gone = {hosts.name(host): host for host in hosts.gone()} if self._facts.hosts else {}
        for name, host in gone.items():
            why = self._reached.get(name)
            if name not in self._reached:
                self._probe([name])
            elif why == "":
                hosts.forget(host)  # it is alive; only the job's processes are gone
                members.found(name)
            elif why and not members.gone({name: why}):
                self._give_up(GiveUp(f"{hosts.describe(host)} is gone: {why}", (name,)))
                return
        if any(self._reached[name] != "" for name in gone):
            return
        if not hosts.any_silent and not members.any_gone:
            self._begin_next()

    def _begin_next(self) -> None:
        if self._has_run:
            self.generation += 1
            why = self._why_ended or why_again(self._roll.shims, self._code)
            self._out.say(f"{why}; starting generation {self.generation} of its agents")
        self._publish()

    # -------------------------------------------------------------- what is looked at

    def _holds(self) -> bool:
        """Returns whether this launcher may act."""
        return not self.deposed and self._now < self._leads_until

    def _hear_status(self, line: int, shim: ShimStatus) -> None:
        if self._members.admits(shim):
            self._roll.note(line, shim)
        else:
            self._roll.turned_away(line)
            self._out.add(Send(line, Over(files_stay=False)))

    def _look_at_hosts(self) -> None:
        self._members.leads = self._holds()
        if self._roll.exit_code is not None:
            return  # hosts whose shims end with the job are not lost
        verdict = self._members.look(self._hosts, self._now)
        if verdict is None:
            return
        if self.phase in (Phase.HEARING, Phase.AWAITING):
            if isinstance(verdict, GiveUp):
                self._give_up(verdict)
        elif self.phase is Phase.RUNNING and not self._why_ended:
            self._end_mpirun(verdict.why, isinstance(verdict, NewAgents) and verdict.counts)

    def _look_at_mpirun(self) -> None:
        over = self._roll.exit_code is not None
        lost = self._hosts.look_at_end(self._now) if over else None
        self._mpirun_rule.look(self._now, self._mpirun, lost, shims=bool(self._roll.shims))

    def _look_at_start(self) -> None:
        """Ends an mpirun whose agents do not begin."""
        if self._now >= self._late_at:
            self._late_at = self._now + TICK_SECONDS
            if self._roll.late_agents(self.generation) and not self._hosts.any_silent:
                self._late_at = float("inf")
                self._out.add(KillMpirun())
        if self._why_ended or self._roll.exit_code is not None:
            return  # shims that have left are not missing
        self._out.add(*map(Probe, self._start.look(self._now, self._roll.ranks)))
        why = self._start.why(self._facts.bootstrap)
        if why and not self._members.gone(self._start.unreachable, at_start=True):
            self._ending.no_start = why
            self._ending.lost = tuple(self._start.unreachable)
            self._end_mpirun(why, counts=False)
        elif not self._progress.over:
            agents, begun = len(self._roll.ranks), self._workers.begun
            if line := self._progress.look(self._now, agents, begun):
                self._out.say(line)

    def _probe(self, hosts: Sequence[str]) -> None:
        self._reached |= dict.fromkeys(hosts)
        self._out.add(*map(Probe, hosts))

    def _change_in_place(self, change: HostChange, left: Mapping[int, Left]) -> bool:
        """Changes the hosts of the running job; returns whether it can, now or a little later."""
        members = self._members
        if change.withdrawn and members.withdraw(change.withdrawn):
            self._out.add(HostsLeft(change.withdrawn, lost=False))
            self._end_mpirun(change.why, counts=False)
            return True
        taken = members.fitting(change.added) if change.added else None
        if taken is None:
            return False
        places = members.members.places
        found = {at: {left[rank] for rank in places[at].ranks} for at in taken}
        if any(Left.FOR_GOOD in each for each in found.values()):
            return False
        gone = [at for at, each in found.items() if each == {Left.MAY_RETURN}]
        if members.refill(taken, gone, self._hosts):
            self._out.add(HostsJoined(change.added))
            self._end_mpirun(change.why, counts=False)
        return True

    # -------------------------------------------------------------- the end

    def _end_mpirun(self, why: str, counts: bool) -> None:
        self._why_ended, self._counts = why, counts
        self._out.add(KillMpirun())

    def _give_up(self, verdict: GiveUp) -> None:
        self._end_with(self._ending.give_up(verdict))

    def _end_with(self, message: str) -> None:
        if message:
            self._out.say(message)
        self._end(told=bool(message))

    def _end(self, *, told: bool = False) -> None:
        self._begin_phase(Phase.ENDED)
        own, code = self._roll.exit_code, self._code if self._has_run else 1
        self._ending.come(self._asked, own, code, self._members.unfilled, told=told)
