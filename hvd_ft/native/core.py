"""The core, seen from Python: the worker's side, and functions that any process may call.

Every name here corresponds to one in ``include/hvd_ft.h``, which documents it; failures raise
:class:`~hvd_ft.errors.HvdFtError` with the core's own line.
"""

import os
import time
from collections.abc import Iterable
from dataclasses import asdict
from functools import cache
from math import ceil
from typing import Any

from hvd_ft.native import abi
from hvd_ft.native.abi import ffi
from hvd_ft.native.divergences import read_divergence, struct_of
from hvd_ft.native.observer import read_events
from hvd_ft.native.rank_words import rank_words
from hvd_ft.native.stacks import offer_stacks
from hvd_ft.native.types import (
    Divergence,
    Event,
    Log,
    Memory,
    Point,
    Snapshot,
    Snapshots,
    Times,
)


def version() -> str:
    """The core's version; equal to the package's if both are of the same build."""
    return abi.text(abi.library().hvdft_version())


def die_with_parent() -> None:
    """The calling process is killed when its parent dies."""
    abi.checked(abi.library().hvdft_die_with_parent())


def become_subreaper() -> None:
    """Orphaned descendants of the calling process become its children."""
    abi.checked(abi.library().hvdft_become_subreaper())


def in_job() -> bool:
    """Whether an agent has started this process."""
    return "HOROVOD_FT_DIR" in os.environ


def failpoint(point: Point, op: int = 0) -> None:
    """Passes a failpoint of this worker, about op ``op``.

    Raises:
        RuntimeError: a drill demands it; other drills end the process.
    """
    if abi.library().hvdft_failpoint(point, op):
        raise RuntimeError(f"a drill (--inject) at the point {point.name.lower()}")


@cache
def worker() -> "Worker | None":
    """This process's attachment to its job, or None when no agent started it.

    Raises:
        HvdFtError: an agent has set the environment, but its arena is missing or not this job's.
    """
    if not in_job():
        return None
    failpoint(Point.ATTACH)
    offer_stacks()  # before the agent knows this process, and may ask for its stacks
    abi.checked(abi.library().hvdft_worker_open())
    return Worker()


def is_attached() -> bool:
    """Whether :func:`worker` has attached this process to its job."""
    return worker.cache_info().currsize > 0


_AGAIN, _NEVER = abi.constant("HVDFT_AGAIN"), abi.constant("HVDFT_ETRUNCATED")
MAX_FINGERPRINT_BYTES = abi.constant("HVDFT_FINGERPRINTS")


class Worker:
    """The worker's attachment; made by :func:`worker` only."""

    def __init__(self) -> None:
        self.directory = os.environ["HOROVOD_FT_DIR"]  # of the job's files
        self.rank = int(abi.library().hvdft_worker_rank())
        self.size = int(abi.library().hvdft_worker_size())
        self.nodes = int(abi.library().hvdft_worker_nodes())
        self.incarnation = int(abi.library().hvdft_worker_incarnation())

    def cursor(self) -> int:
        """Id of the next op this worker executes."""
        return int(abi.library().hvdft_worker_cursor())

    def pending(self) -> int:
        """Tensors handed to Horovod and not yet executed."""
        return int(abi.library().hvdft_worker_pending())

    def times(self) -> Times:
        """How this rank has spent its time so far."""
        out = ffi.new("hvdft_times *")
        abi.library().hvdft_worker_times(out)
        return abi.read(Times, out)

    def loop_begin(self, loop: int) -> int:
        """Begins the script's ``loop``-th training loop; returns the op id it begins at."""
        begin = ffi.new("uint64_t *")
        abi.checked(abi.library().hvdft_worker_loop_begin(loop, begin))
        return int(begin[0])

    def loop_end(self, loop: int) -> None:
        abi.checked(abi.library().hvdft_worker_loop_end(loop))

    def loop_ended(self, loop: int) -> bool:
        return bool(abi.checked(abi.library().hvdft_worker_loop_ended(loop)))

    def snapshot_begin(self, loop: int, cut: int, position: int) -> bool | None:
        """Begins the loop's next snapshot.

        Returns:
            None while the previous snapshot waits for other ranks; False if the previous snapshot
            has to stay until these ranks take another one, or if this snapshot is delivered
            already.
        """
        code = abi.library().hvdft_worker_snapshot_begin(loop, cut, position)
        return None if code == _AGAIN else abi.checked(code) == 0

    def snapshot_room(self, loop: int, size: int) -> memoryview:
        """Returns room for the snapshot that was begun; valid until the snapshot is delivered."""
        room = ffi.new("void **")
        abi.checked(abi.library().hvdft_worker_snapshot_room(loop, size, room))
        return memoryview(ffi.buffer(room[0], size)).cast("B")

    def snapshot_deliver(self, loop: int, snapshot: Snapshot) -> None:
        """Delivers the snapshot's part; it is published when all its parts are delivered."""
        struct = ffi.new("hvdft_snapshot *", asdict(snapshot))
        abi.checked(abi.library().hvdft_worker_snapshot_deliver(loop, struct))

    def snapshot_give_up(self, loop: int, cut: int) -> None:
        """Announces that this rank will deliver no part of a shared snapshot of this cut."""
        abi.checked(abi.library().hvdft_worker_snapshot_give_up(loop, cut))

    def snapshot_settle(self, loop: int) -> bool | None:
        """Publishes a complete snapshot; returns whether another could begin (`snapshot_begin`)."""
        code = abi.library().hvdft_worker_snapshot_settle(loop)
        return None if code == _AGAIN else abi.checked(code) == 0

    def snapshot_owed(self, loop: int) -> bool:
        """Whether the next snapshot has to wait only because of ranks of other nodes."""
        return bool(abi.checked(abi.library().hvdft_worker_snapshot_owed(loop)))

    def snapshot_apart(self) -> None:
        """Lets this process not wait for other nodes before it overwrites a snapshot."""
        abi.library().hvdft_worker_snapshot_apart()

    def snapshot_read(self, loop: int) -> tuple[Snapshot, memoryview] | None:
        """The loop's latest snapshot: this rank's part, valid until the next snapshot call."""
        data, out = ffi.new("const void **"), ffi.new("hvdft_snapshot *")
        if not abi.checked(abi.library().hvdft_worker_snapshot_get(loop, data, out)):
            return None
        return abi.read(Snapshot, out), memoryview(ffi.buffer(data[0], out.bytes)).toreadonly()

    def snapshot_refuse(self, loop: int) -> bool:
        """Skips the loop's latest snapshot, which is damaged.

        Returns:
            Whether the previous one, or the loop's beginning, can be used; see
            `hvd_ft_snapshots.h`.
        """
        return bool(abi.checked(abi.library().hvdft_worker_snapshot_refuse(loop)))

    def snapshot_stripes(self, loop: int, position: int) -> list[memoryview]:
        """The stripes of this node's ranks in the loop's latest snapshot, which they share.

        Args:
            loop: the number of the loop.
            position: the snapshot's position in the op log.
        """
        data, size = ffi.new("const void **"), ffi.new("uint64_t *")
        stripes = []
        for rank in self.node_ranks(position):
            abi.checked(abi.library().hvdft_worker_snapshot_stripe(loop, rank, data, size))
            stripes.append(memoryview(ffi.buffer(data[0], size[0])).toreadonly())
        return stripes

    def snapshot_ticket(self) -> int:
        """The ticket for :meth:`snapshot_wait`; take it before checking the state."""
        return int(abi.library().hvdft_worker_snapshot_ticket())

    def snapshot_wait(self, ticket: int, seconds: float) -> None:
        """Waits until other ranks have published fingerprints or parts since the ticket."""
        abi.library().hvdft_worker_snapshot_wait(ticket, ceil(seconds * 1000))

    def any_away(self) -> bool:
        """Whether another rank is away, or nothing is heard of ranks elsewhere (see the header)."""
        return bool(abi.library().hvdft_worker_any_away())

    def node_ranks(self, position: int | None = None) -> list[int]:
        """The ranks on this node that are present at ``position`` of the log, or here."""
        ranks = ffi.new(f"int[{self.size}]")
        at = self.cursor() if position is None else position
        return list(ranks[0 : abi.library().hvdft_worker_node_ranks(at, ranks)])

    def reference(self, position: int) -> int | None:
        """A present rank of another node with this node's shared data; None if there is none."""
        rank = int(abi.library().hvdft_worker_reference(position))
        return None if rank < 0 else rank

    @property
    def roster(self) -> int:
        """The number of the roster in force at the script's position; 0 if it has all ranks."""
        return int(abi.library().hvdft_worker_roster())

    def present(self, roster: int | None = None) -> list[int]:
        """The ranks of a roster, or of the one in force; hvd.rank() counts them."""
        ranks = ffi.new(f"int[{self.size}]")
        number = self.roster if roster is None else roster
        return list(ranks[0 : abi.library().hvdft_worker_present(number, ranks)])

    def await_quiet(self) -> None:
        """Waits until no tensor is pending, or the job is being stopped."""
        while self.pending() > 0 and self.stop_code < 0:
            time.sleep(0.001)  # seldom: a step boundary usually has none

    def roster_due(self, loop: int) -> int:
        """The number of the roster that begins at this step boundary of a loop; 0: none begins."""
        return int(abi.library().hvdft_worker_roster_due(loop))

    def returns(self, loop: int) -> bool:
        """Whether this rank had left and continues in this loop, of which it has no snapshot."""
        return bool(abi.library().hvdft_worker_returns(loop))

    def await_return(self, loop: int) -> bool:
        """Waits until a roster with this rank begins; returns False if the loop ended before.

        The cursor is then at the roster's beginning, or at the end of the log.

        Raises:
            HvdFtError: the job is being stopped.
        """
        return bool(abi.checked(abi.library().hvdft_worker_return(loop)))

    def ask_to_leave(self, ranks: Iterable[int]) -> None:
        """Requests that ranks leave the job; returns when a roster without them is announced."""
        words = ffi.new("uint64_t[]", rank_words(ranks))
        abi.checked(abi.library().hvdft_worker_ask_to_leave(words))

    def mark_request(self, position: int) -> None:
        """Asks for a mark at ``position`` of the op log or later."""
        abi.library().hvdft_worker_mark_request(position)

    def mark_passed(self, loop: int, since: int) -> bool:
        """Whether this rank has passed a mark since its cursor was at ``since``."""
        return bool(abi.checked(abi.library().hvdft_worker_mark_passed(loop, since)))

    def fingerprints_publish(self, loop: int, cut: int, data: bytes) -> None:
        """Publishes this rank's fingerprints at a cut; none: it takes no part in it."""
        abi.checked(abi.library().hvdft_worker_fingerprints_publish(loop, cut, data, len(data)))

    def cuts_passed(self, loop: int, cut: int) -> None:
        """Announces that this rank no longer takes part in cuts up to this one."""
        abi.library().hvdft_worker_cuts_passed(loop, cut)

    def fingerprints(self, rank: int, loop: int, cut: int) -> tuple[bool, bytes | None]:
        """Whether the wait for a rank's fingerprints at a cut is over; and these, or None."""
        return self._fingerprints(abi.library().hvdft_worker_fingerprints, rank, loop, cut)

    def published(self, rank: int, loop: int, cut: int) -> tuple[bool, bytes | None]:
        """Like `fingerprints`, to compare all ranks; also of a rank that has given the cut up."""
        return self._fingerprints(abi.library().hvdft_worker_published, rank, loop, cut)

    def _fingerprints(self, read: Any, rank: int, loop: int, cut: int) -> tuple[bool, bytes | None]:
        out = ffi.new(f"char[{MAX_FINGERPRINT_BYTES}]")
        size = read(rank, loop, cut, out, len(out))
        if size in (_AGAIN, _NEVER):
            return size == _NEVER, None
        return True, bytes(ffi.buffer(out, abi.checked(size))) or None

    def diverged(self, found: Divergence) -> None:
        """Publishes a divergence; all ranks see an event."""
        abi.library().hvdft_worker_diverged(struct_of(found))

    def divergence(self, number: int) -> Divergence | None:
        """The divergence with this number, the detail of its event; None if it is overwritten."""
        return read_divergence(abi.library().hvdft_worker_divergence, number)

    def jump(self, loop: int) -> None:
        """Continues after the loop's latest snapshot."""
        abi.checked(abi.library().hvdft_worker_jump(loop))

    def count_snapshots(self, more: Snapshots) -> None:
        """Adds to the cost of this rank's snapshots (``count`` counts by itself)."""
        abi.library().hvdft_worker_count_snapshots(ffi.new("hvdft_snapshots *", asdict(more)))

    def log(self) -> Log:
        """The op log's present size and room."""
        out = ffi.new("hvdft_log *")
        abi.library().hvdft_worker_log(out)
        return abi.read(Log, out)

    def memory(self) -> Memory:
        """The present memory of this node."""
        out = ffi.new("hvdft_memory *")
        abi.library().hvdft_worker_memory(out)
        return abi.read(Memory, out)

    @property
    def step_bytes(self) -> int:
        """The most bytes that a step of the present loop has reduced, without broadcasts."""
        return int(abi.library().hvdft_worker_step_bytes())

    def message_room(self) -> tuple[int, int]:
        """Bytes sent and received since the latest snapshot, and this rank's share of the rest."""
        own, share = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        abi.library().hvdft_worker_message_room(own, share)
        return int(own[0]), int(share[0])

    def set_step(self, step: int) -> None:
        """Publishes the number of the training step, for the live display."""
        abi.library().hvdft_worker_set_step(step)
        failpoint(Point.STEP, self.cursor())

    def script_waits(self) -> None:
        """Reports that a thread of the script waits for results from now on."""
        abi.library().hvdft_worker_script_waits()

    def script_goes_on(self) -> None:
        """Reports that it no longer does."""
        abi.library().hvdft_worker_script_goes_on()

    def orderly_exit(self) -> None:
        """Announces that the script ends by itself: it is not restarted, whatever its exit code."""
        abi.library().hvdft_worker_orderly_exit()

    def last_words(self, text: str) -> None:
        """Publishes why this process is about to fail, in one line; the first one counts."""
        abi.library().hvdft_worker_last_words(text.encode(errors="replace"))

    def fatal(self, message: str) -> None:
        """Stops the job with exit code 1 and this message."""
        abi.library().hvdft_worker_fatal(message.encode())

    @property
    def stop_code(self) -> int:
        """Exit code of the job if it is being stopped, else -1."""
        return int(abi.library().hvdft_worker_stop_code())

    @property
    def event_count(self) -> int:
        return int(abi.library().hvdft_worker_event_count())

    def events(self, start: int = 0) -> list[Event]:
        return read_events(abi.library().hvdft_worker_events, start)

    def wait_event(self, seen: int, timeout_ms: int) -> bool:
        """Waits until more than ``seen`` events have happened; False if the time is over."""
        return bool(abi.library().hvdft_worker_wait_event(seen, timeout_ms))
