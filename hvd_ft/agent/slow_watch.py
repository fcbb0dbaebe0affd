"""Watches the ranks of one host for slow ones: says who is slow, what it costs, and the cause.

The agent of the host's first rank does that for all ranks of the host, as it can see their
processes. It sees the times of all ranks of the job, so every host comes to the same verdict.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hvd_ft import native
from hvd_ft.agent.job_context import JobContext
from hvd_ft.agent.slow_causes import Reading, causes, read_host
from hvd_ft.agent.slow_rule import Sample, Slow, SlowRule
from hvd_ft.job.host_key import host_identity
from hvd_ft.native.types import Left, State
from hvd_ft.system.event_loop import EventLoop

_LOOK_SECONDS = 1.0
_RANKS_A_LOOK = 512  # of larger jobs the ranks are looked at less often
_CAUSE_SECONDS = 3.0  # for which the host is measured
_NEVER = float("inf")


@dataclass(frozen=True)
class _Searched:
    """Ranks whose cause is being looked for."""

    found: Slow
    before: Reading
    until: float


class SlowWatch:
    """The watch.

    Args:
        context: the agent's place in the job.
        observer: of the job.
        say: prints a line.
        note: writes an event into the report: its rank and incarnation, its text, and more.
        read: takes a reading of the host, given its workers' processes.

    Attributes:
        look_at: when `look` has to be called, on the clock of time.monotonic().
    """

    def __init__(
        self,
        context: JobContext,
        observer: native.Observer,
        *,
        say: Callable[[str], None],
        note: Callable[[int, int, str, Mapping[str, Any]], None],
        read: Callable[[Mapping[int, int]], Reading] = read_host,
    ) -> None:
        self._observer = observer
        self._say = say
        self._note = note
        self._read = read
        self._own = frozenset(context.host_ranks) if context.leads_host else frozenset()
        self._host = host_identity()[0]
        hosts = context.hosts
        self._rule = SlowRule([hosts.ranks(node) for node in range(len(hosts))])
        self._every = max(_LOOK_SECONDS, observer.size / _RANKS_A_LOOK)
        self._searched: list[_Searched] = []
        self.look_at = time.monotonic() if self._own and observer.size > 1 else _NEVER

    def follow(self, loop: EventLoop) -> None:
        """Looks whenever it is time, as long as the loop runs.

        Args:
            loop: of the agent.
        """

        def on_time() -> None:
            self.look()
            timer.set(self.look_at)

        timer = loop.timer(on_time)
        timer.set(self.look_at)

    def look(self) -> None:
        """Judges the ranks, and says what has changed."""
        now = time.monotonic()
        self.look_at = now + self._every
        samples = self._samples()
        for found in self._rule.observe(now, samples):
            if not self._own.issuperset(found.ranks):
                continue  # another host's agent says it
            if found.ended:
                self._tell(found, samples)
            else:
                before = self._read(self._pids())
                self._searched.append(_Searched(found, before, now + _CAUSE_SECONDS))
        for searched in [each for each in self._searched if each.until <= now]:
            self._searched.remove(searched)
            why = causes(searched.before, self._read(self._pids()), searched.found.ranks)
            self._tell(searched.found, samples, why)

    def _tell(self, found: Slow, samples: Mapping[int, Sample], why: tuple[str, ...] = ()) -> None:
        text = found.in_words(self._host) + (f": {'; '.join(why)}" if why else "")
        rank = found.ranks[0]
        facts = {
            "ranks": list(found.ranks),
            "host": self._host,
            "ended": found.ended,
            "late": found.late,
            "seconds": found.seconds,
            "wait": found.wait,
            "step_seconds": found.step_seconds,
            "causes": list(why),
        }
        incarnation = samples[rank].incarnation if rank in samples else 0
        self._say(text)
        self._note(rank, incarnation, text, facts)

    def _samples(self) -> dict[int, Sample]:
        """Returns what the ranks that take part have published."""
        found = {}
        for rank in range(self._observer.size):
            status = self._observer.status(rank)
            if status.state is not State.DONE and self._observer.left(rank) is Left.NO:
                times = self._observer.times(rank)
                found[rank] = Sample(status.state, status.incarnation, status.step, times)
        return found

    def _pids(self) -> dict[int, int]:
        """Returns the workers of this host, by rank."""
        found = {rank: self._observer.status(rank).pid for rank in sorted(self._own)}
        return {rank: pid for rank, pid in found.items() if pid}
