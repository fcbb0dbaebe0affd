"""Watches one rank's worker while others wait for it: reports where it is, or has it killed."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from hvd_ft import native
from hvd_ft.agent import stacks
from hvd_ft.agent.hang_rule import LOOKS, HangRule, Stuck
from hvd_ft.job.settings import Settings

_ANSWER_SECONDS = 1.0  # limit for a worker to write its stacks
_REST_SECONDS = 0.1  # limit for the rest of them
_NEVER = float("inf")


@dataclass(frozen=True)
class _Asked:
    """The worker has been asked for its stacks."""

    stuck: Stuck
    kill: bool
    answer_by: float


class StallWatch:
    """The watch.

    Args:
        rank: of the worker.
        settings: the limits.
        observer: of the job.
        reader: of the worker's stacks.
        ask: asks the worker to write them.
        warn: prints where the worker is.
        note: writes the whole stacks into the report.

    Attributes:
        look_at: when `look` has to be called, on the clock of time.monotonic().
    """

    def __init__(
        self,
        rank: int,
        settings: Settings,
        observer: native.Observer,
        reader: stacks.StackReader,
        *,
        ask: Callable[[], None],
        warn: Callable[[str], None],
        note: Callable[[str], None],
    ) -> None:
        self._rank = rank
        self._observer = observer
        self._reader = reader
        self._ask = ask
        self._warn = warn
        self._note = note
        hang, warning = settings.hang_timeout_seconds, settings.stall_warning_seconds
        self._kill_rule = HangRule(rank, hang) if hang else None
        self._warn_rule = HangRule(rank, warning) if warning else None
        limits = [limit for limit in (hang, warning) if limit]
        self._every = min(limits) / LOOKS if limits else _NEVER
        self._asked: _Asked | None = None
        self._warned_of = 0.0  # seconds of the stall that was reported last
        self.look_at = _NEVER

    def begin(self) -> None:
        """Watches another worker from now on."""
        self._asked, self._warned_of = None, 0.0
        self.look_at = time.monotonic() if self._every < _NEVER else _NEVER

    def skip(self) -> None:
        """Watches none for now."""
        self._asked, self.look_at = None, time.monotonic() + self._every

    def on_readable(self) -> None:
        """Reads what the worker has written."""
        self._reader.read()
        if self._asked:
            answer_by = time.monotonic() + _REST_SECONDS
            self._asked = replace(self._asked, answer_by=answer_by)
            self.look_at = answer_by

    def look(self, pid: int) -> Stuck | None:
        """Judges the ranks, or the stacks that were asked for.

        Args:
            pid: of the worker.

        Returns:
            Why the worker is to be killed, or None.
        """
        now = time.monotonic()
        if self._asked:
            return self._finish(self._asked, pid) if self._asked.answer_by <= now else None
        self.look_at = now + self._every
        ranks = {rank: self._observer.watch(rank) for rank in range(self._observer.size)}
        if self._kill_rule and (stuck := self._kill_rule.observe(now, ranks)):
            self._request(stuck, kill=True)
        elif self._warn_rule:
            stalled = self._warn_rule.observe(now, ranks)
            if stalled is None:
                self._warned_of = 0.0
            elif stalled.seconds >= 2 * self._warned_of:
                self._warned_of = stalled.seconds
                self._request(stalled, kill=False)
        return None

    def _request(self, stuck: Stuck, *, kill: bool) -> None:
        self._reader.take()  # stacks that came too late for an earlier request
        self._ask()
        self.look_at = time.monotonic() + _ANSWER_SECONDS
        self._asked = _Asked(stuck, kill, self.look_at)

    def _finish(self, asked: _Asked, pid: int) -> Stuck | None:
        self._asked, self.look_at = None, time.monotonic() + self._every
        text = self._reader.take()
        found = stacks.frames(text)
        where = f"it is at {found[0]}" if found else stacks.why_none(pid)
        stuck = replace(asked.stuck, where=where)
        self._note(text or where)
        if asked.kill:
            self.look_at = _NEVER  # until the next worker starts
            return stuck
        lines = "".join(f"\n    {frame}" for frame in found[1:])
        self._warn(f"rank {self._rank} {stuck.as_warning()}{lines}")
        return None
