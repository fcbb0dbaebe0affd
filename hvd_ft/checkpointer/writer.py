"""The checkpoint writer's loop: follows rounds, writes shares, completes and deletes checkpoints.

Nothing in it stops the training. It reports problems with every checkpoint that is missed, and at
the end if the latest one was missed (unwritten.py). After a job has ended badly, it writes the
latest state (drain.py).
"""

import os
import signal
import time
from collections.abc import Callable, Mapping
from types import FrameType

from hvd_ft.checkpoint import catalogue
from hvd_ft.checkpoint.manifest import Messages
from hvd_ft.checkpoint.rules import Complaints, Schedule, to_delete
from hvd_ft.checkpointer import unwritten
from hvd_ft.checkpointer.capture import Captured, capture, held, messages
from hvd_ft.checkpointer.completion import complete
from hvd_ft.checkpointer.cuts import (
    Cut,
    Parts,
    common,
    first_behind,
    position_of,
    with_earlier_loops,
)
from hvd_ft.checkpointer.drain import drain
from hvd_ft.checkpointer.origin import Origin
from hvd_ft.checkpointer.round import Round, share_detail
from hvd_ft.checkpointer.share import AbandonedError, Began, wait_until, write_share
from hvd_ft.errors import HvdFtError
from hvd_ft.job.settings import Settings
from hvd_ft.native.checkpointer import Checkpointer
from hvd_ft.native.types import Event, EventType
from hvd_ft.system.say import say
from hvd_ft.system.signal_pipe import signals_wake
from hvd_ft.system.stop_signals import ASK_SIGNAL, END_SIGNAL, HELD_SIGNALS

_LOOK_SECONDS = 0.5  # at the slots, should an event have been missed
_LONG_SECONDS = 60.0
_BEFORE_LOOPS_SECONDS = 600.0  # a script may prepare its data for as long
_FOR_OTHERS = 2 / 3  # of the time at the end of a job


class Writer:
    """The writer of one node.

    Args:
        native: the node's side of the core.
        origin: origin of the checkpoints.
        settings: the user's settings.
        base: name of the checkpoint from which the job was resumed, if it lies in the same
            directory.
        clock: returns seconds; time.monotonic() except in tests.
    """

    def __init__(
        self,
        native: Checkpointer,
        origin: Origin,
        settings: Settings,
        base: str | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._native = native
        self._origin = origin
        self._base = base
        self._keep = settings.checkpoint_keep
        self._patience = settings.checkpoint_timeout_seconds
        self._interval = settings.checkpoint_interval_seconds
        self._coordinates = origin.place.node == 0
        self._schedule = Schedule(self._interval, clock())
        self._complaints = Complaints()
        self._deletions = Complaints()
        self._round: Round | None = None
        self._waits_since = 0.0  # for a snapshot: since the round or the latest loop began
        self._marked_loops = 0  # begun at the latest mark
        self._write_since = 0.0  # when this node began to write its share of the round
        self._share_since = 0.0  # when this node's share of the round was written
        self._said_slow = False
        self._asked = self._ending = False

    def run(self) -> None:
        """Writes checkpoints until END_SIGNAL, then the rest that has to be written."""
        signal.signal(ASK_SIGNAL, self._on_ask)
        signal.signal(END_SIGNAL, self._on_end)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_SIGNALS)
        with signals_wake(self._native.wake):
            self._prepare()
            while not self._ending:
                self._step()
        if self._native.ended_well:
            self._try_to_delete(self._tidy)
        # The shim kills this process when all of the time is over.
        elif drain(self._native, self._origin, self._patience * _FOR_OTHERS):
            self._try_to_delete(self._prune)

    def _on_ask(self, number: int, frame: FrameType | None) -> None:
        self._asked = True

    def _on_end(self, number: int, frame: FrameType | None) -> None:
        self._ending = True  # nothing is raised here, as Python may be anywhere

    def _is_over(self) -> bool:
        """Whether the job has ended well, so that a share being written is not needed."""
        return self._ending and self._native.ended_well

    def _prepare(self) -> None:
        """Makes the directory, and finds out at once whether it can be written."""

        def make() -> None:
            directory = self._origin.directory
            directory.mkdir(0o700, parents=True, exist_ok=True)
            if not os.access(directory, os.W_OK | os.X_OK):
                raise PermissionError(13, os.strerror(13), str(directory))

        self._attempt(make, missed=False)

    # -------------------------------------------------------------- rounds

    def _step(self) -> None:
        """Does what there is to do, then waits."""
        self._hear()
        now = self._clock()
        due = self._round is None and now >= self._schedule.due_at
        if self._coordinates and (due or self._asked):
            self._begin(now)
        round_ = self._round
        if round_ is not None and not round_.failed:
            self._follow(round_, now)
            if round_.failed and self._coordinates and self._round is round_:
                self._round = None
        self._wait(now)

    def _hear(self) -> None:
        while event := self._native.next_event():
            self._on_event(event)

    def _on_event(self, event: Event) -> None:
        round_ = self._round
        if event.type is EventType.CHECKPOINT:
            self._complaints.begun()
            self._round = Round(event.detail, self._origin.place.nodes)
            self._waits_since = self._clock()
        elif round_ is None:
            return
        elif event.type is EventType.SHARE:
            round_.share(event.rank, event.detail)
        elif event.detail == round_.position:
            self._round = None

    def _begin(self, now: float) -> None:
        """Begins a round; files of older rounds are not needed any more."""
        self._asked = False
        self._schedule.begun(now)
        self._try_to_delete(self._tidy)
        self._marked_loops = self._native.loops_of_all
        self._native.request()
        self._hear()

    def _follow(self, round_: Round, now: float) -> None:
        if round_.waits_for_snapshot:
            round_.failed |= not self._attempt(lambda: self._write(round_))
        if round_.cut is None or round_.failed:
            return
        if round_.torn and self._coordinates:
            self._begin(now)
        elif round_.complete and self._origin.leads:
            done = self._attempt(lambda: self._complete(round_))
            round_.failed = True  # there is nothing more to do
            if done and self._coordinates:
                self._native.event(EventType.CHECKPOINTED, round_.position)
        elif self._coordinates and now > self._share_since + self._patience:
            there = len(round_.shares)
            self._complain(
                f"{round_.nodes - there} of {round_.nodes} nodes have not written their share "
                f"within HOROVOD_FT_CHECKPOINT_TIMEOUT_SECONDS={self._patience:g}"
            )
            self._round = None

    def _wait(self, now: float) -> None:
        round_ = self._round
        if self._ending or self._asked:
            return
        if round_ is not None and round_.waits_for_snapshot:
            self._native.wait(_LOOK_SECONDS, any_event=True)
            return
        until = self._schedule.due_at if self._coordinates else now + _LONG_SECONDS
        if round_ is not None:
            until = self._share_since + self._patience if self._coordinates else until
        self._native.wait(min(max(until - now, 0.01), _LONG_SECONDS))

    # -------------------------------------------------------------- shares

    def _write(self, round_: Round) -> None:
        """Writes this node's share if the snapshot is there."""
        cuts = common(held(self._native), self._native.present)
        # Where no rank is left there is nothing to be written, of the cut that the others have.
        idle = not self._native.has_ranks
        cut = round_.of_others if idle else first_behind(cuts, round_.position)
        if cut is None:
            self._await_snapshot()
            return
        if not self._origin.is_complete(cut) and not self._write_cut(round_, cuts, cut):
            return
        round_.cut = cut
        self._share_since = self._clock()
        self._native.event(EventType.SHARE, share_detail(round_.position, cut))
        self._hear()

    def _write_cut(self, round_: Round, cuts: Mapping[Cut, Parts], cut: Cut) -> bool:
        """Writes the share; returns whether it is written; otherwise the next cut can be used."""
        captured: dict[Cut, dict[int, Captured]] = {}
        told: tuple[list[Messages], list[Messages]] = ([], [])
        present = self._native.present()
        began = Began.now()
        if self._native.has_ranks:
            wanted = with_earlier_loops(cuts, cut)
            self._write_since = self._clock()
            told = messages(self._native, wanted[cut])
            present = self._native.present(position_of(wanted[cut]))
            copies = capture(self._native, wanted)
            if copies is None:  # they have been overwritten
                return False
            captured = copies
        write_share(
            self._origin,
            cut,
            captured,
            told,
            present,
            began=began,
            await_seconds=self._patience,
            given_up=lambda: self._given_up(round_),
            over=self._is_over,
        )
        return True

    def _given_up(self, round_: Round) -> bool:
        """Whether the job ends, or the next round has begun."""
        self._hear()
        return self._ending or not (self._round is None or self._round is round_)

    def _complete(self, round_: Round) -> None:
        cut = next(iter(round_.shares.values()))
        origin = self._origin
        if not origin.is_complete(cut):

            def seen() -> bool:
                return len(origin.shares(cut)) == len(origin.group)

            if not wait_until(seen, self._patience, lambda: self._given_up(round_)):
                raise HvdFtError(
                    "the share of another node is not seen here; see whether --checkpoint-dir is "
                    "on one file system that all hosts share, and up to date there"
                )
            complete(origin, cut, origin.group)
        if self._complaints.succeeded():
            say(f"checkpoints are written again: {origin.path(cut)}")
        if self._coordinates:
            unwritten.note(self._native.path, "")
        self._try_to_delete(self._prune)
        seconds = self._clock() - self._write_since
        if self._coordinates and self._schedule.is_slow(seconds) and not self._said_slow:
            self._said_slow = True
            say(
                f"writing a checkpoint to {origin.directory} took {seconds:.1f} s, longer than the "
                f"interval of {self._interval:g} s: there are fewer of them"
            )

    def _prune(self) -> None:
        """Deletes the checkpoints that are not kept."""
        directory = self._origin.directory
        entries = [
            catalogue.entry_of(found, found.manifest)
            for found in catalogue.find(directory)
            if found.manifest is not None
        ]
        # Another host may not have completed the newest one yet.
        keep = self._keep + self._origin.apart
        for name in to_delete(entries, self._origin.run, keep, self._base):
            catalogue.remove(directory, name)

    def _tidy(self) -> None:
        if self._origin.leads:
            catalogue.remove_leftovers(self._origin.directory, [self._origin.job])

    # -------------------------------------------------------------- complaints

    def _attempt(self, act: Callable[[], object], *, missed: bool = True) -> bool:
        """Does something on the disk; returns whether it succeeded, otherwise reports why.

        Args:
            act: the action.
            missed: whether its failure means that the checkpoint is missed.
        """
        try:
            act()
        except AbandonedError:
            return False
        except (OSError, HvdFtError) as error:
            self._complain(_reason(error), missed=missed)
            return False
        return True

    def _try_to_delete(self, act: Callable[[], object]) -> None:
        try:
            act()
        except (OSError, HvdFtError) as error:
            if text := self._deletions.failed(_reason(error), missed=False):
                say(f"old files were not deleted from {self._origin.directory}: {text}")

    def _complain(self, reason: str, *, missed: bool = True) -> None:
        directory = self._origin.directory
        if text := self._complaints.failed(reason, missed=missed):
            say(
                f"no checkpoint was written to {directory}: {text}; training continues, and the "
                "next one is tried as usual"
            )
        if missed and self._coordinates:
            number = self._complaints.missed
            which = "checkpoint was" if number == 1 else f"{number} checkpoints were"
            unwritten.note(
                self._native.path, f"the latest {which} not written to {directory}: {reason}"
            )

    def _await_snapshot(self) -> None:
        if not self._coordinates:
            return
        now = self._clock()
        if (loops := self._native.loops_of_all) > self._marked_loops:
            self._marked_loops = loops
            self._waits_since = now
            self._native.mark()
        limit = self._interval + self._patience
        if loops == 0:
            limit = max(limit, _BEFORE_LOOPS_SECONDS)
        if now > self._waits_since + limit:
            self._complain(
                f"the ranks have had no snapshot of the same step for {limit:g} s (loops without "
                "collectives, steps of process sets, or nothing that takes snapshots)",
                missed=False,
            )


def _reason(error: OSError | HvdFtError) -> str:
    if not isinstance(error, OSError):
        return str(error)
    place = f" ({error.filename})" if error.filename else ""
    return f"{error.strerror or error}{place}"
