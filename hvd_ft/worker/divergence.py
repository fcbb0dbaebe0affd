"""Compares the variables of all ranks, in rank 0's worker, beside the training.

Every rank publishes the fingerprints of its variables at every cut; the mirror brings those of
other nodes. A thread waits for them, and reports variables that have diverged (divergence_rule.py).
"""

import os
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hvd_ft.native.core import Worker
from hvd_ft.native.types import Divergence
from hvd_ft.system.say import say
from hvd_ft.worker.divergence_rule import DivergenceRule, Kind, Variable

WAIT_SECONDS = 10.0  # at a loop's end, for the ranks that come to it later
_LOOK_SECONDS = 1.0  # at whether a rank's fingerprints will never come
_POLICY = "HOROVOD_FT_ON_DIVERGENCE"  # which the agent has checked


def variables_of(names: Sequence[str], kinds: Mapping[str, Kind]) -> list[Variable]:
    """Returns the variables of a snapshot.

    Args:
        names: the names of its arrays, with their numbers: `3:dense/kernel:0`.
        kinds: the known kinds, by these names.
    """
    return [Variable(re.sub(r"^\d+:", "", name), kinds.get(name, Kind.OTHER)) for name in names]


def describe(found: Divergence, size: int) -> str:
    """Returns the line for the user about a divergence in a job of `size` ranks."""
    others = "each other" if len(found.ranks) == size else "the others"
    verb = "differs" if found.rank is not None else "differ"
    before = f"at step {found.equal_step}" if found.equal_step else "before"
    return (
        f"{found.what}: {found.where} {verb} from {others} at step {found.step}, all being equal "
        f"{before}: memory went wrong there, or the script changes it on some ranks only; go back "
        "to a checkpoint from before, and if the script is right, leave that host out "
        "(HOROVOD_FT_ON_DIVERGENCE is warn, stop or off)"
    )


@dataclass(frozen=True, eq=False)
class _Cut:
    loop: int
    number: int
    step: int
    variables: list[Variable]
    ranks: list[int]


class DivergenceWatch:
    """Compares the cuts of one process's training loops.

    Args:
        worker: rank 0's attachment to its agent.
        stop: whether a divergence stops the job.
    """

    def __init__(self, worker: Worker, *, stop: bool) -> None:
        self._worker = worker
        self._stop = stop
        self._rule = DivergenceRule()
        self._changed = threading.Condition()
        # The one that is being compared, and the next: ranks keep their two latest fingerprints.
        self._cuts: list[_Cut] = []
        self._thread: threading.Thread | None = None
        self._waits = True

    def expect(self, loop: int, number: int, step: int, variables: list[Variable]) -> None:
        """Announces a cut at which this rank, too, is going to publish its fingerprints.

        Args:
            loop: number of the training loop.
            number: of the cut.
            step: steps of the loop that are done.
            variables: in the order of the snapshot's arrays.
        """
        with self._changed:
            del self._cuts[1:]
            self._cuts.append(_Cut(loop, number, step, variables, self._worker.present()))
            self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._compare_all, name="hvd_ft divergence", daemon=True
            )
            self._thread.start()

    def withdraw(self, loop: int, number: int) -> None:
        """Announces that this rank publishes nothing at that cut after all."""
        with self._changed:
            self._cuts = [cut for cut in self._cuts if (cut.loop, cut.number) != (loop, number)]
            self._changed.notify_all()

    def finish(self) -> None:
        """Waits until the latest cut is compared, because the process may end after this call.

        It does not wait if no divergence could be found there. It waits at most `WAIT_SECONDS`,
        unless a rank is away, and in vain only once: ranks that do not reach this loop's end
        together will not reach the next loop's end together either.
        """
        with self._changed:
            useful = self._rule.watches or len(self._cuts) > 1
            if self._cuts and useful and self._waits:
                self._waits = self._await_compared()

    def _await_compared(self) -> bool:
        until = time.monotonic() + WAIT_SECONDS
        while not self._changed.wait_for(lambda: not self._cuts, min(_LOOK_SECONDS, WAIT_SECONDS)):
            if self._worker.any_away():  # it comes back, or the job ends
                until = time.monotonic() + WAIT_SECONDS
            elif time.monotonic() > until:
                return False
        return True

    def _compare_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._cuts)
                cut = self._cuts[0]
            ranks = self._all_fingerprints(cut)
            if ranks is not None:
                self._compare(cut, ranks)
            with self._changed:
                self._cuts = [other for other in self._cuts if other is not cut]
                self._changed.notify_all()

    def _all_fingerprints(self, cut: _Cut) -> list[bytes] | None:
        """Returns the fingerprints of all ranks; None if some never come."""
        found: dict[int, bytes] = {}
        while cut in self._cuts:
            ticket = self._worker.snapshot_ticket()
            for rank in cut.ranks:
                if rank not in found:
                    came, data = self._worker.published(rank, cut.loop, cut.number)
                    if came and data is None:
                        return None
                    if data is not None:
                        found[rank] = data
            if len(found) == len(cut.ranks):
                return [found[rank] for rank in cut.ranks]
            if self._worker.stop_code >= 0:
                return None
            self._worker.snapshot_wait(ticket, _LOOK_SECONDS)
        return None

    def _compare(self, cut: _Cut, ranks: list[bytes]) -> None:
        found = self._rule.compare(cut.loop, cut.step, cut.variables, ranks)
        if found is None:
            return
        found = replace(found, ranks=tuple(cut.ranks[index] for index in found.ranks))
        self._worker.diverged(found)
        line = describe(found, len(cut.ranks))
        if self._stop:
            self._worker.fatal(line)
        else:
            say(line)


def divergence_watch(worker: Worker) -> DivergenceWatch | None:
    """Returns the watch of a process; None if it is not rank 0's, or nothing is to be compared."""
    policy = os.environ.get(_POLICY) or "warn"
    if worker.rank > 0 or worker.size == 1 or policy == "off":
        return None
    return DivergenceWatch(worker, stop=policy == "stop")
