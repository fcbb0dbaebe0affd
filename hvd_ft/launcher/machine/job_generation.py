"""One generation of agents: whether it begins, and why its mpirun has ended. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from hvd_ft.job.settings import Settings
from hvd_ft.launcher.machine.actions import Actions, KillMpirun, Probe
from hvd_ft.launcher.machine.job_facts import JobFacts
from hvd_ft.launcher.machine.seen import WorkersSeen
from hvd_ft.launcher.machine.shim_roll import ShimRoll
from hvd_ft.launcher.machine.start_progress import StartProgress
from hvd_ft.launcher.machine.start_watch import SECONDS, StartWatch
from hvd_ft.members.hosts import Host
from hvd_ft.system.wait_status import describe_code

STARTS_IN_ADOPTION = 3  # attempts to start agents while shims wait for one
_NEVER = float("inf")


class JobGeneration:
    """The present generation.

    Args:
        facts: of the job.
        settings: the limits.
        roll: of the job's shims.
        out: takes actions.
        now: seconds on any steady clock.

    Attributes:
        number: of it, or of the next one.
        why_ended: its mpirun, if this machine killed it; else "".
        counts: whether the end of its mpirun counts as a failure of agents.
        code: of its mpirun.
        progress: of the start of the job.
    """

    def __init__(
        self, facts: JobFacts, settings: Settings, roll: ShimRoll, out: Actions, now: float
    ) -> None:
        self._facts = facts
        self._late_seconds = settings.adoption_timeout_seconds / STARTS_IN_ADOPTION
        self._roll = roll
        self._out = out
        self._start = StartWatch((), now)
        self._late_at = _NEVER
        self._lines: Sequence[str] = ()  # the last that mpirun has said, if it did not start
        self.number = facts.generation
        self.why_ended = ""
        self.counts = True
        self.code = 1
        self._loses = False  # an agent, as it begins
        self.progress = StartProgress(facts.size, now)

    def begin(self, hosts: Sequence[Host], now: float, seconds: float = SECONDS) -> None:
        """Its agents are started.

        Args:
            hosts: of the job; none if all ranks are on this host.
            now: seconds on any steady clock.
            seconds: for them to begin before their hosts are probed.
        """
        self.why_ended, self.counts = "", True
        self._loses = False
        self._start = StartWatch(hosts, now, seconds)
        self._late_at = now + self._late_seconds

    def look(self, now: float, *, any_silent: bool) -> None:
        """Kills an mpirun whose agents do not begin, and probes their hosts.

        Args:
            now: seconds on any steady clock.
            any_silent: whether any host does not answer.
        """
        if now >= self._late_at and not any_silent and self._roll.late_agents(self.number):
            self._late_at = _NEVER
            self._out.add(KillMpirun())
        if not self.why_ended:
            self._probe(self._start.look(now, self._roll.ranks))

    def say_progress(self, workers: WorkersSeen, now: float) -> None:
        """Says how many ranks have begun, if that takes long."""
        if not self.progress.over:
            agents = len(self._roll.ranks)
            if line := self.progress.look(now, agents, workers.begun):
                self._out.say(line)

    def probed(self, host: str, reason: str) -> None:
        """Notes the outcome of a probe."""
        self._start.probed(host, reason)

    @property
    def unreachable(self) -> dict[str, str]:
        """The hosts that keep it from beginning, as far as that is known, and why."""
        return self._start.unreachable

    @property
    def why_not(self) -> str:
        """Why its agents cannot begin, in one line; "" if no reason is known."""
        return self._start.why(self._facts.bootstrap)

    def kill(self, why: str, counts: bool) -> None:
        """Has the mpirun killed.

        Args:
            why: in words.
            counts: as the attribute.
        """
        self.why_ended, self.counts = why, counts
        self._out.add(KillMpirun())

    def loses(self) -> bool:
        """Notes that an agent has died as it began; returns whether it is the first one."""
        first, self._loses = not self._loses, True
        return first

    def ended(self, code: int, lines: Sequence[str]) -> None:
        """Its mpirun has ended.

        Args:
            code: its exit code, negative: the signal that killed it.
            lines: the last that it has printed, if it did not start the agents.
        """
        self.code, self._lines = code, lines

    def find_out(self) -> None:
        """Probes all hosts, as mpirun has failed, and no agent was heard of."""
        self._probe(self._start.find_out())

    @property
    def knows(self) -> bool:
        """Whether all that was probed is known."""
        return self._start.knows

    def describe_failure(self) -> str:
        """Returns why no agent was heard of, after `find_out`; "" if that is not known."""
        if why := self.why_not:
            return why
        if not self._lines:
            return ""
        lines = "".join(f"\n    {line}" for line in self._lines)
        code = describe_code(self.code)
        return f"mpirun did not start the job's agents ({code}); it says:{lines}"

    def describe_end(self) -> str:
        """Returns how its mpirun has ended, in words."""
        return f"mpirun ended ({describe_code(self.code)}) before any agent began"

    def _probe(self, hosts: Sequence[str]) -> None:
        self._out.add(*map(Probe, hosts))
