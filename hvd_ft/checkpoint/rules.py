"""When a checkpoint is due, which one is the newest, and which ones are deleted. Pure."""

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A checkpoint among others.

    Attributes:
        name: name of its directory.
        run: the run of the job that wrote it: see manifest.py.
        begun: when that job began, in seconds since 1970.
        loop: number of its latest training loop.
        cut: cut of that loop.
        whole: whether no rank's part is missing.
    """

    name: str
    run: str
    begun: int
    loop: int
    cut: int
    whole: bool = True

    @property
    def age(self) -> tuple[int, str, int, int]:
        """The older one is less."""
        return self.begun, self.name.partition("-")[0], self.loop, self.cut


def newest(entries: Collection[Entry]) -> Entry | None:
    """Returns the newest whole checkpoint; None if there is none."""
    return max((entry for entry in entries if entry.whole), key=lambda e: e.age, default=None)


def to_delete(entries: Collection[Entry], run: str, keep: int, base: str | None) -> list[str]:
    """Returns the names of the checkpoints that are not kept.

    Args:
        entries: all checkpoints.
        run: only checkpoints of this run are deleted.
        keep: how many of the newest whole ones are kept.
        base: name of the checkpoint from which the job was resumed. It is kept too, because a
            restarted rank may load it again.
    """
    own = [entry for entry in entries if entry.run == run]
    whole = sorted((e for e in own if e.whole), key=lambda entry: entry.age)
    kept = {entry.name for entry in whole[-keep:]}
    # What a lost host has left without its parts serves until a whole one is newer.
    latest = newest(own)
    old = [e for e in own if not e.whole and latest is not None and e.age < latest.age]
    return sorted(entry.name for entry in [*whole, *old] if entry.name not in kept | {base})


class Schedule:
    """When the next checkpoint is due. Times are seconds on any steady clock.

    Args:
        interval: time from the beginning of one checkpoint to the beginning of the next.
        now: the present time; the first one is due an interval later.
    """

    def __init__(self, interval: float, now: float) -> None:
        self._interval = interval
        self._from = now

    @property
    def due_at(self) -> float:
        """When the next one is due."""
        return self._from + self._interval

    def begun(self, now: float) -> None:
        """A checkpoint has begun."""
        self._from = now

    def is_slow(self, seconds: float) -> bool:
        """Whether a checkpoint that takes so long to write holds up the next one."""
        return seconds > self._interval


class Complaints:
    """What went wrong, to be reported once for each checkpoint, and again when it has changed.

    The text that is due is returned, not printed.

    Attributes:
        missed: how many checkpoints were not written since the latest one that was.
    """

    def __init__(self) -> None:
        self._said = ""
        self._counted = False  # the present one, as missed
        self.missed = 0

    def begun(self) -> None:
        """Another checkpoint is begun: problems that persist are reported again."""
        self._said = ""
        self._counted = False

    def failed(self, reason: str, *, missed: bool = True) -> str | None:
        """Returns the line to print; None if the last one was the same.

        Args:
            reason: what went wrong.
            missed: whether this is why the present checkpoint is not written.
        """
        if missed and not self._counted:
            self._counted = True
            self.missed += 1
        if reason == self._said:
            return None
        self._said = reason
        return f"{reason} ({self.missed} in a row)" if missed and self.missed > 1 else reason

    def succeeded(self) -> bool:
        """The present checkpoint is written; returns whether something had gone wrong before."""
        before = bool(self._said or self.missed)
        self._said, self.missed = "", 0
        return before
