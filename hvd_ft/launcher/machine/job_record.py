"""The job's record, of which this launcher is the leader: what begins is put there first. Pure."""

from hvd_ft.launcher.machine.actions import Actions, Publish
from hvd_ft.launcher.machine.job_facts import JobFacts
from hvd_ft.members.membership import Membership

AGAIN_SECONDS = 0.5
_NEVER = float("inf")


class JobRecord:
    """The record. Without one this launcher leads for ever, and nothing is put there.

    Args:
        facts: of the job.
        seconds: for the record to be written, before the job ends.
        out: takes actions.

    Attributes:
        deposed: whether another launcher has taken the job over.
        again_at: when it is tried again.
    """

    def __init__(self, facts: JobFacts, seconds: float, out: Actions) -> None:
        self._facts = facts
        self._seconds = seconds
        self._out = out
        self._until = _NEVER
        self._begun_at = 0.0
        self._what = (0, facts.members)
        self.deposed = False
        self.again_at = _NEVER

    def leads(self, until: float, deposed: bool) -> None:
        """The leadership was renewed, or lost."""
        self._until, self.deposed = until, deposed

    def holds(self, now: float) -> bool:
        """Returns whether this launcher may act."""
        return not self.deposed and now < self._until

    def publish(self, generation: int, members: Membership, now: float) -> None:
        """Begins to put something there."""
        self._begun_at = now
        self._put(generation, members)

    def published(self, done: bool, members: Membership, now: float) -> bool:
        """Returns whether what is published is what is to begin.

        Args:
            done: whether the record was written.
            members: the present membership; a host may have been replaced meanwhile.
            now: seconds on any steady clock.
        """
        if not done:
            self.again_at = now + AGAIN_SECONDS
            return False
        generation, put = self._what
        if put != members:
            self._put(generation, members)
        return put == members

    def look(self, now: float) -> str:
        """Tries again if it is time; returns why the job ends, if that takes too long."""
        if now >= self.again_at:
            self._put(*self._what)
        return self._overdue(now - self._begun_at)

    def lapsed(self, now: float) -> str:
        """Returns why a job ends that cannot continue without the leadership; "": not yet."""
        return self._overdue(now - self._until)

    def _overdue(self, seconds: float) -> str:
        if seconds <= self._seconds:
            return ""
        return (
            f"the record of job {self._facts.id} in HOROVOD_FT_SHARED_DIR could not be renewed "
            f"for {seconds:.0f} s, so no agents are started and the job ends"
        )

    def _put(self, generation: int, members: Membership) -> None:
        self.again_at = _NEVER
        self._what = generation, members
        self._out.add(Publish(generation, members))
