"""The rule that decides whether a host's processes may act. Pure.

In a job with spare hosts the launcher gives the ranks of a lost host to another host, and two
incarnations of a rank must never act at once. In a job that may shrink, the other hosts continue
without the lost one. That host may be alive and only unreachable. So every shim has a lease. When
its lease has expired, a shim stops the processes below it, and its agent. The launcher waits until
the lease must have expired, whatever it has sent before (membership_rule.py).

No clocks are compared, and nothing is counted from a message's arrival, which may be late. Once a
second the launcher sends a question. The shim notes the time and answers; when the launcher has
received the answer, it grants a lease by the answer's number. The lease counts from when the shim
*sent that answer*, which was before the launcher received it: so the launcher, which counts from
then, waits long enough.
"""

from dataclasses import dataclass, replace

_ANSWERS_KEPT = 16  # not granted yet; one a second
_NEVER = float("-inf")


@dataclass(frozen=True)
class ActLease:
    """The lease of one shim.

    Attributes:
        seconds: its length.
        until: when it runs out, on the shim's clock; before the first grant there is no lease.
        answers: number and time of the answers that were sent and not granted yet.
    """

    seconds: float
    until: float = _NEVER
    answers: tuple[tuple[int, float], ...] = ()

    def answered(self, number: int, now: float) -> "ActLease":
        """Notes an answer, before it is sent.

        Args:
            number: of the question.
            now: seconds on any steady clock.
        """
        return replace(self, answers=(*self.answers, (number, now))[-_ANSWERS_KEPT:])

    def granted(self, number: int) -> "ActLease":
        """Renews the lease.

        Args:
            number: of the answer that the launcher has received.
        """
        times = [time for known, time in self.answers if known == number]
        if not times:
            return self
        later = tuple(answer for answer in self.answers if answer[1] > times[0])
        return replace(self, until=max(self.until, times[0] + self.seconds), answers=later)

    def holds(self, now: float) -> bool:
        """Returns whether the processes may act."""
        return now < self.until
