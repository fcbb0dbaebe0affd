"""Which launcher leads a job if there can be two: the rule, and the interface of the arbiter.

When a launcher dies with its host, the job has none. Another launcher, on another host of the job,
may take the job over with `hvdft run --resume`, but never while the first one still acts, which may
only be out of reach. An arbiter outside both decides. It has one operation: to replace the job's
record only if the record is still what the caller has read. shared_record.py keeps the record in a
directory that all hosts share; with etcd the operation would be a transaction on one key.

No clocks are compared. The leader renews the record by counting its beats, and acts for a time from
when it began the last renewal that succeeded. Another launcher takes over when it has seen the same
beat for that time and a margin. Its new term then fails every renewal of the old leader.
"""

from dataclasses import dataclass, replace
from typing import Protocol

LEADERSHIP_SECONDS = 10.0
MARGIN_SECONDS = 5.0
RENEW_SECONDS = 2.0
_NEVER = float("-inf")


@dataclass(frozen=True)
class Record:
    """The arbiter's record of a job.

    Attributes:
        job: its id.
        term: counts its leaders.
        leader: who leads, in words.
        beat: counts the renewals of all terms.
        seconds: how long the leader acts after a renewal.
        released: whether the leader has ended in good order.
        generation: the latest generation of agents that was started.
        members: the membership, as text.
    """

    job: str
    term: int
    leader: str
    beat: int
    seconds: float
    released: bool
    generation: int
    members: str


class Arbiter(Protocol):
    """Keeps the record of one job for all launchers."""

    def read(self) -> Record | None:
        """Returns the record; None if there is none.

        Raises:
            OSError: it cannot be read now.
        """

    def swap(self, expected: Record | None, new: Record) -> bool:
        """Replaces the record, if it is the expected one, in one step.

        Returns:
            Whether it was replaced.

            Raises:
                OSError: it cannot be replaced now, or it is not known whether it was.
        """

    def remove(self) -> None:
        """Removes the record, at the end of the job."""


@dataclass(frozen=True)
class Watched:
    """The record as seen by a launcher that wants to lead. Pure.

    Attributes:
        record: the latest record; None: there is none.
        since: when this beat was seen first, on the launcher's clock.
        moved: whether the beat has changed while it was watched, so that the leader lives.
    """

    record: Record | None = None
    since: float = _NEVER
    moved: bool = False

    def seen(self, record: Record | None, now: float) -> "Watched":
        """Notes the record.

        Args:
            record: the record as read.
            now: when it had been read, seconds on any steady clock.
        """
        if self.since == _NEVER:
            return Watched(record, now)
        if _beat(record) == _beat(self.record):
            return replace(self, record=record)
        return Watched(record, now, True)

    def may_claim(self, now: float, margin: float = MARGIN_SECONDS) -> bool:
        """Returns whether no other launcher can still act as the leader.

        Args:
            now: seconds on the same clock, before the claim.
            margin: seconds.
        """
        if self.since == _NEVER:
            return False
        if self.record is None or self.record.released:
            return True
        return now > self.since + self.record.seconds + margin


class Leadership:
    """The leadership of one launcher.

    Args:
        arbiter: the job's arbiter.
        record: the record that this launcher has put there.
        now: the time before it did so, seconds on any steady clock.

    Attributes:
        deposed: whether another launcher leads.
        problem: why the last renewal failed; "" if it did not.
    """

    def __init__(self, arbiter: Arbiter, record: Record, now: float) -> None:
        self._arbiter = arbiter
        self._record = record
        self._until = now + record.seconds
        self.deposed = False
        self.problem = ""

    @classmethod
    def claim(
        cls, arbiter: Arbiter, watched: Watched, record: Record, now: float
    ) -> "Leadership | None":
        """Makes this launcher the leader; None if another one was faster.

        Args:
            arbiter: the job's arbiter.
            watched: the watched record, which shows that this launcher may claim.
            record: the record with which this launcher begins; its term and beat follow the present
                ones.
            now: seconds on the clock of `watched`, read before this call.
        """
        old = watched.record
        number = (0, 0) if old is None else (old.term, old.beat)
        mine = replace(record, term=number[0] + 1, beat=number[1] + 1, released=False)
        return cls(arbiter, mine, now) if arbiter.swap(old, mine) else None

    @property
    def term(self) -> int:
        """The number of this launcher among the job's leaders."""
        return self._record.term

    @property
    def until(self) -> float:
        """When this launcher may not act any more, unless it renews its leadership."""
        return self._until

    def holds(self, now: float) -> bool:
        """Returns whether this launcher may act."""
        return not self.deposed and now < self._until

    def renew(self, now: float) -> bool:
        """Renews the leadership.

        Args:
            now: seconds, read before this call.

        Returns:
            Whether that succeeded.
        """
        return self._put(self._record, now)

    def publish(self, generation: int, members: str, now: float) -> bool:
        """Records the generation that is about to begin; it may begin only if this returns True.

        Args:
            generation: number of the generation of agents.
            members: the membership as text.
            now: seconds, read before this call.
        """
        return self._put(replace(self._record, generation=generation, members=members), now)

    def release(self, now: float) -> None:
        """Records that this launcher ends and the job can be resumed."""
        self._put(replace(self._record, released=True), now)

    def remove(self) -> None:
        """Removes the record of the job, which is over."""
        if not self.deposed:
            self._arbiter.remove()

    def _put(self, changed: Record, now: float) -> bool:
        if self.deposed:
            return False
        try:
            new = replace(changed, beat=self._record.beat + 1)
            if not self._arbiter.swap(self._record, new):
                found = self._arbiter.read()
                if found is None or found.term != self._record.term:
                    self.deposed = True
                    return False
                # An earlier call has succeeded although it reported an error.
                new = replace(changed, beat=found.beat + 1)
                if not self._arbiter.swap(found, new):
                    return False
        except OSError as error:
            self.problem = error.strerror or str(error)
            return False
        self._record, self._until, self.problem = new, now + new.seconds, ""
        return True


def _beat(record: Record | None) -> tuple[int, int] | None:
    return None if record is None else (record.term, record.beat)
