"""Copies the moments of single ops into the report, for `hvdft run --trace-ops`.

Each rank publishes the moments of its latest 64 ops, and each node those of its part in the ring
(csrc/protocol/op_times.h). The mirror copies them to rank 0's node and translates them to its
clock, which is the report's. The agent of rank 0, which writes the report, reads them 20 times a
second.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hvd_ft import native
from hvd_ft.native.observer import OPS_KEPT
from hvd_ft.native.types import OpMoments
from hvd_ft.system.event_loop import EventLoop

_LOOK_SECONDS = 0.05  # a ring of 64 ops lasts for 1280 ops a second


class OpReader:
    """Follows the latest ops of one rank: which have ended, and how many were missed. Pure.

    An op that a rank begins takes the place of the one 64 before. Ops that a rank has no part in
    never take theirs.

    Args:
        late: whether other agents have read before, so that earlier ops do not count as missed.

    Attributes:
        missed: ops that were overwritten before they were read as ended.
    """

    def __init__(self, *, late: bool = False) -> None:
        self._next = list(range(OPS_KEPT))  # by place: the first op not decided upon
        self._begun: set[int] = set()  # of these, the ones that were seen to have begun
        self._newest = -1
        self._late = late
        self.missed = 0

    def read(self, found: Mapping[int, OpMoments]) -> list[OpMoments]:
        """Returns the ops that have ended and were not returned before, in order.

        Args:
            found: what the rank has published, by op.
        """
        in_place = {op % OPS_KEPT: op for op in found}
        if self._late and found:
            self._late = False
            self._next = [in_place.get(place, place) for place in range(OPS_KEPT)]
            self._newest = max(found)
        for place in range(OPS_KEPT):
            self._skip_absent(place, in_place.get(place, -1))
        ended = [each for _, each in sorted(found.items()) if self._decide(each)]
        self._newest = max(found, default=self._newest)
        return ended

    def _skip_absent(self, place: int, op: int) -> None:
        """Passes over ops in which the rank has no part: later ones had begun at the last look."""
        awaited = self._next[place]
        if op < awaited <= self._newest and awaited not in self._begun:
            self._next[place] += OPS_KEPT * ((self._newest - awaited) // OPS_KEPT + 1)

    def _decide(self, each: OpMoments) -> bool:
        """Returns whether the op is to be written now."""
        place = each.op % OPS_KEPT
        if each.op < self._next[place]:
            return False  # written before
        self.missed += (each.op - self._next[place]) // OPS_KEPT
        self._begun.discard(self._next[place])
        self._next[place] = each.op
        if not each.done_ns:
            self._begun.add(each.op)
            return False
        self._next[place] += OPS_KEPT
        return True


def note_of(ops: Sequence[OpMoments]) -> dict[str, Any]:
    """Returns the fields of a report's line about ops; its schema describes them.

    Args:
        ops: of one rank, at least one; all have ended.
    """
    first = min(each.begun_ns for each in ops)
    return {
        "time_ns": first,
        "ops": [
            [
                each.op,
                each.begun_ns - first,
                each.begun_ns - each.handed_ns if each.handed_ns else None,
                max(each.contributed_ns - each.begun_ns, 0) if each.contributed_ns else None,
                max(each.done_ns - each.begun_ns, 0),
            ]
            for each in ops
        ],
    }


class OpTrace:
    """Reads what the ranks, and the nodes in the ring, have published, and writes it.

    Args:
        observer: of the job, on rank 0's node.
        firsts: the first rank of each member of the ring.
        write: adds a line to the report.
        say: prints a line.
        late: whether agents of an older generation have written before.
    """

    def __init__(
        self,
        observer: native.Observer,
        firsts: Sequence[int],
        *,
        write: Callable[[Mapping[str, Any]], None],
        say: Callable[[str], None],
        late: bool,
    ) -> None:
        self._observer = observer
        self._write = write
        self._say = say
        of_ring = [(first, True) for first in firsts]
        self._readers = {
            of: OpReader(late=late)
            for of in [*((r, False) for r in range(observer.size)), *of_ring]
        }

    def follow(self, loop: EventLoop) -> None:
        """Reads whenever it is time, as long as the loop runs.

        Args:
            loop: of the agent.
        """

        def on_time() -> None:
            self.read()
            timer.set(time.monotonic() + _LOOK_SECONDS)

        timer = loop.timer(on_time)
        timer.set(time.monotonic())

    def read(self) -> None:
        """Writes the ops that have ended since the last call: a line for each that has any."""
        for (rank, of_ring), reader in self._readers.items():
            ops = reader.read(self._observer.op_moments(rank, of_ring=of_ring))
            if ops:
                incarnation = self._observer.status(rank).incarnation
                whose = {"rank": rank, "incarnation": incarnation}
                self._write({"type": "RING" if of_ring else "OPS", **whose, **note_of(ops)})

    def finish(self) -> None:
        """Writes the last ops, and says how many are missing."""
        self.read()
        missed = {of: reader.missed for of, reader in self._readers.items() if reader.missed}
        if missed:
            ranks = ", ".join(
                f"{number} of rank {rank}{' in the ring' if of_ring else ''}"
                for (rank, of_ring), number in missed.items()
            )
            self._say(
                f"--trace-ops: up to {sum(missed.values())} ops are missing in the report, because "
                f"later ones overwrote them before they were read ({ranks}): it keeps up with "
                f"{OPS_KEPT / _LOOK_SECONDS:.0f} ops a second"
            )
