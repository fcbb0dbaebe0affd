"""Starts a job under Intel MPI, follows it, and leaves nothing behind when it ends."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hvd_ft.errors import HvdFtError
from hvd_ft.job.directory import job_path, sweep_stale
from hvd_ft.job.drills import renamed
from hvd_ft.job.leftovers import clear_leftovers
from hvd_ft.job.lifeline import LifeLines, check_descriptors
from hvd_ft.job.peer_file import PeerFile
from hvd_ft.job.processes import end_processes
from hvd_ft.launcher.asked_end import AskedEnd
from hvd_ft.launcher.checkpoints import how_to_go_on, nothing_to_go_on_from
from hvd_ft.launcher.exit_rule import PREEMPTED, code_after_signal
from hvd_ft.launcher.generations import (
    Again,
    GenerationPolicy,
    NotYet,
    Over,
    agents_late,
    agents_lost,
    why_again,
)
from hvd_ft.launcher.host_watch import GiveUp
from hvd_ft.launcher.in_place import Done, change_in_place
from hvd_ft.launcher.job import (
    Job,
    ResolvedJob,
    check_job,
    mpirun_command,
    network_of,
    resolve,
)
from hvd_ft.launcher.job_leader import END_SECONDS, lead
from hvd_ft.launcher.job_members import JobMembers
from hvd_ft.launcher.mpirun_watch import MpirunWatch
from hvd_ft.launcher.reach import Probes
from hvd_ft.launcher.shim_step import VARIABLE, ShimStep, start_step
from hvd_ft.launcher.start_progress import StartProgress
from hvd_ft.launcher.start_watch import StartWatch, cannot_reach
from hvd_ft.launcher.watchers import Display, Resizing
from hvd_ft.mpi import leftover_files
from hvd_ft.mpi.hydra_output import MpirunOutput
from hvd_ft.mpi.mpirun import Mpirun
from hvd_ft.native.observer import Observer
from hvd_ft.native.types import State
from hvd_ft.system.apart import call_apart
from hvd_ft.system.event_loop import EventLoop
from hvd_ft.system.say import say
from hvd_ft.system.stop_signals import PREEMPTION, StopSignals, stop_signals
from hvd_ft.system.wait_status import describe_code

TICK_SECONDS = 0.25
CLEAR_LIMIT_SECONDS = 15.0  # for shims to kill their workers and clear the job's files
# When an agent has died Hydra mostly ends all others, and itself, at once.
HYDRA_LIMIT_SECONDS = 0.5
STARTS_IN_ADOPTION = 3  # attempts to start agents while shims wait for one
NOT_STARTED = 2  # the exit code of agents that cannot begin
HEAR_LIMIT_SECONDS = 5.0  # limit for shims to report that they have lost their agents


@dataclass(frozen=True)
class Ended:
    """How a job has ended.

    Attributes:
        code: the exit code.
        lost: the hosts whose loss has ended it, if `Job.may_shrink`, or that cannot be reached.
        resized: whether it was ended for `Resizing`.
    """

    code: int
    lost: tuple[str, ...] = ()
    resized: bool = False


def launch(
    job: Job, display: Display | None = None, watch: Callable[[Observer], None] | None = None
) -> int:
    """Runs a job to its end.

    When agents or mpirun die before the job has ended, a new generation of agents is started, which
    takes over the running workers.

    On SIGINT, SIGTERM or SIGHUP the job is asked to end; on a second signal, or if it does not end
    in time, it is killed. When this returns no process of the job is left, and no file unless a
    lost host ended the job: then its state is kept for `Job.resume`.

    Args:
        job: What to run.
        display: Shows the job while it runs.
        watch: Called about 4 times a second with an observer of the running job.

    Returns:
        The workers' exit code; 128 + the signal's number if a signal ended this process or mpirun.

    Raises:
        HvdFtError: The job cannot be started.
    """
    resolved = resolve(job)
    ended = run_job(resolved, display, watch)
    settings = resolved.settings
    text = how_to_go_on(settings) if ended.code else ""
    if ended.code == PREEMPTED and settings.grace_seconds:
        text = text or nothing_to_go_on_from(settings)
    if text:
        say(text)
    return ended.code


def run_job(
    resolved: ResolvedJob,
    display: Display | None = None,
    watch: Callable[[Observer], None] | None = None,
    resizing: Resizing | None = None,
) -> Ended:
    """Runs a job to its end, as `launch` does; says why it ended, but not how it could go on.

    Args:
        resolved: What to run.
        display: As for `launch`.
        watch: As for `launch`.
        resizing: Decides whether the job ends early; asked about 4 times a second while it trains.

    Raises:
        HvdFtError: The job cannot be started.
    """
    check_job(resolved)
    job, settings = resolved.job, resolved.settings
    check_descriptors(job.size)
    for notice in filter(None, map(renamed, job.inject)):
        say(notice)
    if job.machine_file is not None:
        say(network_of(resolved))
    clear_leftovers(settings.arena_dir, but=job.id)
    more = PREEMPTION if settings.grace_seconds else ()
    with EventLoop() as loop, stop_signals(more) as signals:
        run = _Run(loop, resolved, signals, display, watch)
        run.resizing = resizing
        try:
            code = run.follow()
        finally:
            run.clear()
        resized = run.ends_early and code == PREEMPTED and not signals.received
        return Ended(code, run.lost if not signals.received else (), resized)


class _Run:
    """A job, from its first mpirun until nothing of it is left."""

    def __init__(
        self,
        loop: EventLoop,
        resolved: ResolvedJob,
        signals: StopSignals,
        display: Display | None,
        watch: Callable[[Observer], None] | None,
    ) -> None:
        job, settings = resolved.job, resolved.settings
        one_host = job.machine_file is None
        self.loop = loop
        self.job = job
        self.resolved = resolved
        self.arena_dir = settings.arena_dir
        self.directory = job_path(settings.arena_dir, job.id)
        self.signals = signals
        loop.watch(signals, lambda: signals.received)  # so it is not readable any more
        self.display = display
        self.watch = watch
        with contextlib.ExitStack() as undo:  # what was begun, if the rest cannot be
            self.lifelines = LifeLines(
                loop, resolved.address, settings.lease_seconds, None if one_host else settings.ports
            )
            undo.callback(self.lifelines.close)
            self.leader = None if one_host else lead(loop, job, settings, signals)
            if self.leader:
                undo.callback(self.leader.end, resumable=job.resume)
            self.members = JobMembers(resolved, self.lifelines, self.leader, loop.now())
            undo.callback(self.members.close)
            self.hosts = self.members.host_watch()
            self.output = MpirunOutput(loop, display if display and display.takes_output else None)
            undo.pop_all()
        self.policy = GenerationPolicy(settings)
        self.shared_dir = settings.shared_dir
        self.start_limit = settings.adoption_timeout_seconds / STARTS_IN_ADOPTION
        self.mpirun = Mpirun(loop, self.output)
        self.asked_end = AskedEnd(
            loop, signals, self.lifelines, job.size, settings, mpirun=self.mpirun
        )
        self.mpirun_watch = MpirunWatch(self.mpirun, self.hosts, self.lifelines, settings)
        self.step: ShimStep | None = None
        self.start: StartWatch | None = None  # of this mpirun
        self.progress = StartProgress(job.size, loop.now())
        self.observer: Observer | None = None
        self.files_stay = False
        self.resizing: Resizing | None = None
        self.ends_early = False  # for it
        self.lost: tuple[str, ...] = ()  # hosts that the job is to do without
        self._next_tick = loop.timer(self._on_tick)
        self._next_tick.set(0.0)
        self._why_ended = ""  # mpirun, if this process killed it
        self._counts = True  # whether its end counts as a failure of agents
        self._no_start = ""  # why the job's agents could not be started

    def follow(self) -> int:
        """Starts generations of agents until the job has ended; returns the exit code."""
        generation = self._first_generation()
        if self.job.resume and self.members.replaces:
            self.members.gone(self._reach(self.members.names))
            if over := self._await_hosts():
                say(over.message)
                return self._exit_code(1)
        self.step = start_step(self.loop, self.resolved, lambda: bool(self.signals.received))
        while True:
            if self.leader and not self.leader.publish(generation, str(self.members.members)):
                self.files_stay = generation > 0 and not self.signals.received
                return self._exit_code(1)
            code = self._run_generation(generation)
            verdict = self._given_up() or self._judge()
            if isinstance(verdict, Again):
                verdict = self._await_hosts() or verdict
            if isinstance(verdict, Over):
                if not verdict.message and not self._no_start:
                    self._no_start = self._why_not_started(code)
                if message := verdict.message or self._no_start:
                    say(message)
                return self._exit_code(code)
            generation += 1
            why = self._why_ended or why_again(self.lifelines.shims, code)
            say(f"{why}; starting generation {generation} of its agents")

    def _first_generation(self) -> int:
        if not self.job.resume:
            return 0
        if self.members.resumed_generation is not None:
            return self.members.resumed_generation
        try:
            observer = Observer(self.directory)
        except HvdFtError as error:
            raise HvdFtError(
                f"job {self.job.id} cannot be resumed from this host ({error}): give --resume the "
                "id of a job that was ended because of a lost host, on one of its hosts"
            ) from None
        try:
            return observer.generation + 1
        finally:
            observer.close()

    def _run_generation(self, generation: int) -> int:
        """Runs mpirun to its end; returns its exit code."""
        environment = {
            **self.resolved.environment,
            "HOROVOD_FT_LAUNCHER": self.lifelines.address,
            "HOROVOD_FT_GENERATION": str(generation),
            **self.members.environment(),
            **({VARIABLE: self.step.name} if self.step else {}),
        }
        job = self.members.present()
        self.hosts.begin(generation)
        self.members.begin(generation)
        self._why_ended, self._counts = "", True
        self.start = StartWatch(job.hosts, environment, self.loop.now(), self.members.start_limit)
        self.mpirun.start(mpirun_command(job, environment), environment)

        def check_late() -> None:
            if agents_late(self.lifelines.shims, generation) and not self.hosts.any_silent:
                self.mpirun.kill()
            late.set(self.loop.now() + TICK_SECONDS)

        def heed() -> None:
            self.asked_end.heed()
            if agents_lost(self.lifelines.shims, generation):
                self.mpirun.end_by(HYDRA_LIMIT_SECONDS)

        try:
            with self.loop.timeout(check_late, self.loop.now() + self.start_limit) as late:
                code = self.mpirun.follow(heed)
        finally:
            self.start.close()
        self.asked_end.mpirun_has_ended()
        self._tick(None)
        return code

    def _on_tick(self) -> None:
        now = self.loop.now()
        self._next_tick.set(now + TICK_SECONDS)
        self._tick(self.watch)
        self._watch_hosts(now)
        self._say_progress(now)
        if self.resizing:
            self._resize(self.resizing, now)

    def _resize(self, resizing: Resizing, now: float) -> None:
        if left := self.members.take_left():
            resizing.left(left, lost=True)
        if self.ends_early or self._why_ended or not self._trains():
            return
        change = resizing.change(now)
        if change is None or not self.mpirun.runs:
            return
        assert self.observer
        done = change_in_place(change, self.members, self.hosts, resizing, self.observer)
        if done is Done.YES:
            self._end_mpirun(change.why, counts=False)
        elif done is Done.NO:
            say(f"{change.why}: going on with {change.size} ranks from the next step boundary")
            self.ends_early = True
            self.asked_end.preempt()

    def _trains(self) -> bool:
        """Returns whether every rank is beyond its first step: before that there is no state."""
        job = self.observer
        return job is not None and all(job.status(rank).step > 1 for rank in range(job.size))

    def _watch_hosts(self, now: float) -> None:
        if self.leader and self.leader.deposed:
            self.mpirun.kill()
        if self.mpirun_watch.look(now):
            return  # hosts whose shims end with the job are not lost
        verdict = self.members.look(self.hosts, now)
        if verdict is not None and not self._why_ended:
            self._end_mpirun(verdict.why, not isinstance(verdict, GiveUp) and verdict.counts)
        here = self._ranks_here()
        if self.start and not self._why_ended:
            why = self.start.look(now, here)
            if why and not self.members.gone(self.start.unreachable, at_start=True):
                self._no_start = why
                self.lost = tuple(self.start.unreachable)
                self._end_mpirun(why, counts=False)

    def _ranks_here(self) -> set[int]:
        """Returns the ranks whose agents have begun."""
        return {shim.rank for shim in self.lifelines.shims if shim}

    def _say_progress(self, now: float) -> None:
        if self.progress.over or self._why_ended or not self.mpirun.runs:
            return
        begun = None
        if job := self.observer:
            states = (job.status(rank).state for rank in range(job.size))
            begun = sum(state != State.STARTING for state in states)
        if line := self.progress.look(now, len(self._ranks_here()), begun):
            say(line)

    def _end_mpirun(self, why: str, counts: bool) -> None:
        self._why_ended, self._counts = why, counts
        self.mpirun.kill()

    def _judge(self) -> Again | Over:
        """Determines whether the job has ended with its mpirun."""
        deadline = self.loop.now() + HEAR_LIMIT_SECONDS
        counts = self._counts and not self.hosts.lost_one
        self._next_tick.clear()
        try:
            while True:
                self.loop.run_once(0)
                over = bool(self.signals.received) or self.lifelines.exit_code is not None
                verdict = self.policy.ended(
                    self.lifelines.shims, self.loop.now(), over=over, counts=counts
                )
                if not isinstance(verdict, NotYet):
                    return verdict
                left = deadline - self.loop.now()
                if left <= 0:
                    return Over("the job's agents live on without their mpirun; the job was ended")
                self.loop.run_once(left)
        finally:
            self._next_tick.set(self.loop.now())

    def _await_hosts(self) -> Over | None:
        """Waits until new agents can be started on all hosts; returns the reason if they cannot."""
        while self.job.machine_file is not None:
            names = {self.hosts.name(host): host for host in self.hosts.gone()}
            reasons = self._reach(list(names))
            if self.signals.received:
                return Over()
            if given_up := self._given_up():
                return given_up
            for name, host in names.items():
                if name not in reasons:
                    self.hosts.forget(host)  # it is alive; only the job's processes are gone
                    self.members.found(name)
                elif host in self.hosts.gone() and not self.members.gone({name: reasons[name]}):
                    why = f"{self.hosts.describe(host)} is gone: {reasons[name]}"
                    return self._give_up(GiveUp(why, (name,)))
            if not self.hosts.any_silent and not self.members.any_gone:
                return None
            self.loop.run_once()
        return None

    def _reach(self, hosts: Sequence[str]) -> dict[str, str]:
        """Probes hosts; returns the reasons of those that cannot be reached."""
        probes = Probes(hosts, self.resolved.environment)
        epoch = self.members.members.epoch
        while not probes.poll() and not self.signals.received:
            self.loop.run_once()
            if self.members.members.epoch != epoch:
                break  # a host that does not answer the probe has been replaced meanwhile
        probes.close()
        return {**dict.fromkeys(probes.waiting, "it has been replaced"), **probes.unreachable}

    def _given_up(self) -> Over | None:
        if self.leader and self.leader.deposed:
            return Over("another hvdft run has taken the job over, so this one ends")
        if self.lifelines.exit_code is not None:
            return None
        verdict = self.members.look(self.hosts, self.loop.now())
        return self._give_up(verdict) if isinstance(verdict, GiveUp) else None

    def _give_up(self, verdict: GiveUp) -> Over:
        self.lost = verdict.names
        if self.job.may_shrink:
            return Over(f"{verdict.why}: the job goes on without it, if enough ranks are left")
        self.files_stay = True
        return Over(
            f"{verdict.why}, so the job was ended; its state stays on the other hosts: hvdft run "
            f"--resume {self.job.id} with the same -np and -H goes on, hvdft clean {self.job.id} "
            "removes it"
        )

    def _tick(self, watch: Callable[[Observer], None] | None) -> None:
        if self.observer is None:
            # Not there yet, or not complete yet: the next tick looks again.
            with contextlib.suppress(HvdFtError):
                self.observer = Observer(self.directory)
        if self.observer and self.display:
            self.display.update(self.observer)
        if self.observer and watch:
            watch(self.observer)

    def _why_not_started(self, code: int) -> str:
        """Determines why an mpirun has failed whose agents were never heard of."""
        if code == 0 or self.signals.received or self.lifelines.hosts:
            return ""
        assert self.start
        probes = self.start.find_out()
        while not probes.poll() and not self.signals.received:
            self.loop.run_once()
        if why := cannot_reach(self.job.hosts, probes.unreachable, self.resolved.environment):
            return why
        if not self.output.kept:
            return ""
        lines = "".join(f"\n    {line}" for line in self.output.kept)
        return f"mpirun did not start the job's agents ({describe_code(code)}); it says:{lines}"

    def _exit_code(self, code: int) -> int:
        if received := self.signals.received:
            own, grace = self.lifelines.exit_code, self.asked_end.has_grace
            return code_after_signal(received, own, grace=grace)
        if self.lifelines.exit_code is not None:
            if self.lifelines.exit_code == NOT_STARTED:
                self.lost = self.lost or self.members.unfilled  # not there either
            return self.lifelines.exit_code
        if self.files_stay or self._no_start or self.lost:
            return 1
        if code < 0:
            say(
                f"mpirun was killed by {signal.Signals(-code).name}, so the job was ended; "
                "run it again"
            )
            return 128 - code
        return code

    def clear(self) -> None:
        """Waits until every process of the job has ended, kills the rest, removes files."""
        if self.observer:
            self.observer.close()
        self.mpirun.end()
        deposed = self.leader is not None and self.leader.deposed
        self.lifelines.tell({"over": True, "files_stay": self.files_stay or deposed})
        self.lifelines.close()  # on all nodes, shims that wait for agents end
        if self.step:
            self.step.close()
        self.members.close()
        ours = self.mpirun.was_started and not deposed  # or it is another launcher's
        if ours:
            end_processes(self.job.id, CLEAR_LIMIT_SECONDS + self.asked_end.drain_seconds)
        if self.step:
            self.step.end()
        if not ours:
            return
        if self.shared_dir:
            with contextlib.suppress(OSError):  # one that does not answer
                remove = PeerFile(self.shared_dir, self.job.id).remove
                call_apart(self.loop, remove, END_SECONDS, lambda: False)
        if not self.files_stay:
            sweep_stale(self.arena_dir, only=self.job.id)
        leftover_files.sweep()
        if self.leader:
            self.leader.end(resumable=self.files_stay)
        self.output.drain()
