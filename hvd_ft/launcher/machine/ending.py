"""How a job has ended: its exit code, and what stays of it. Pure."""

from __future__ import annotations

import signal

from hvd_ft.launcher.machine.actions import Actions, End
from hvd_ft.launcher.machine.asked_end import AskedEnd
from hvd_ft.launcher.machine.exit_rule import PREEMPTED, code_after_signal
from hvd_ft.launcher.machine.host_watch import GiveUp
from hvd_ft.launcher.machine.job_facts import JobFacts

NOT_STARTED = 2  # the exit code of agents that cannot begin


class Ending:
    """What is known of the end of one job, before it has come.

    Args:
        facts: of the job.
        out: takes actions.

    Attributes:
        lost: the hosts that the job is to do without, or that keep its agents from beginning.
        files_stay: whether the job can be resumed.
        resizes: whether it ends to continue with other hosts.
        no_start: why its agents could not be started; "": they were.
    """

    def __init__(self, facts: JobFacts, out: Actions) -> None:
        self._facts = facts
        self._out = out
        self.lost: tuple[str, ...] = ()
        self.files_stay = False
        self.resizes = False
        self.no_start = ""

    def begin(self) -> None:
        """Another generation of agents is started: what was to end the last one is over."""
        self.lost = ()
        self.resizes = False
        self.no_start = ""

    def give_up(self, verdict: GiveUp) -> str:
        """Hosts are given up; returns what that means for the job, in words."""
        self.lost = verdict.names
        if self._facts.may_shrink:
            return f"{verdict.why}: the job continues without it, if enough ranks are left"
        self.files_stay = True
        return (
            f"{verdict.why}, so the job was ended; its state stays on the other hosts: {self._next}"
        )

    def not_resumed(self) -> str:
        """Nothing of a resumed job has begun; returns what that means for it, in words."""
        self.files_stay = True
        return f"the job was not resumed; its state stays as it was: {self._next}"

    @property
    def _next(self) -> str:
        job = self._facts.id
        return (
            f"hvdft run --resume {job} with the same -np and -H continues it, hvdft clean {job} "
            "removes it"
        )

    def come(
        self,
        asked: AskedEnd,
        own: int | None,
        mpirun: int,
        unfilled: tuple[str, ...],
        *,
        told: bool,
    ) -> None:
        """The end has come.

        Args:
            asked: what signals have asked for.
            own: the exit code that shims have reported; None: they have not.
            mpirun: the exit code of the last mpirun; negative: the signal that killed it.
            unfilled: the hosts for which agents that cannot begin stand.
            told: whether the user knows why the job has ended.
        """
        if own == NOT_STARTED:
            self.lost = self.lost or unfilled  # not there either
        code = self._code(asked, own, mpirun, told)
        resized = self.resizes and code == PREEMPTED and not asked.received
        lost = () if asked.received else self.lost
        self._out.add(End(code, self.files_stay, lost, resized))

    def _code(self, asked: AskedEnd, own: int | None, mpirun: int, told: bool) -> int:
        if asked.received:
            return code_after_signal(asked.received, own, grace=asked.has_grace)
        if own is not None:
            return own
        if self.files_stay or self.no_start or self.lost:
            return 1
        if mpirun < 0:
            name = signal.Signals(-mpirun).name
            if not told:
                self._out.say(f"mpirun was killed by {name}, so the job was ended; run it again")
            return 128 - mpirun
        return mpirun
