"""A read-only view of a job, seen from Python.

Every name here stands for one in ``include/hvd_ft.h``, which documents it; failures raise
:class:`~hvd_ft.errors.HvdFtError` with the core's own line.
"""

from typing import Any

from hvd_ft.errors import HvdFtError
from hvd_ft.native import abi
from hvd_ft.native.abi import ffi
from hvd_ft.native.divergences import read_divergence
from hvd_ft.native.types import (
    Divergence,
    Event,
    Left,
    Memory,
    OpMoments,
    Snapshots,
    Status,
    Times,
    Watch,
)

_EVENTS_AT_ONCE = 1024
OPS_KEPT = abi.constant("HVDFT_OPS_KEPT")


def read_events(read: Any, start: int) -> list[Event]:
    """All events from number ``start`` on; the next one is number ``start + len()``."""
    out = ffi.new("hvdft_event[]", _EVENTS_AT_ONCE)
    events: list[Event] = []
    while True:
        count = read(start, out, _EVENTS_AT_ONCE)
        events += [abi.read(Event, out[i]) for i in range(count)]
        if count < _EVENTS_AT_ONCE:
            return events
        start += count


class Observer:
    """A read-only look at the job in ``directory``."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._handle = abi.library().hvdft_observer_open(directory.encode())
        if not self._handle:
            raise HvdFtError(abi.error())

    def close(self) -> None:
        """Unmaps the arena; the observer cannot be used afterwards."""
        if self._handle:
            abi.library().hvdft_observer_close(self._handle)
            self._handle = None

    @property
    def handle(self) -> Any:
        """The handle for functions of the core that are wrapped elsewhere (``logs.py``)."""
        return self._handle

    @property
    def size(self) -> int:
        return int(abi.library().hvdft_observer_size(self._handle))

    @property
    def used_bytes(self) -> int:
        return int(abi.library().hvdft_observer_used_bytes(self._handle))

    @property
    def limit_bytes(self) -> int:
        return int(abi.library().hvdft_observer_limit_bytes(self._handle))

    @property
    def window_bytes(self) -> int:
        return int(abi.library().hvdft_observer_window_bytes(self._handle))

    @property
    def generation(self) -> int:
        return int(abi.library().hvdft_observer_generation(self._handle))

    @property
    def log_length(self) -> int:
        return int(abi.library().hvdft_observer_log_length(self._handle))

    @property
    def log_records(self) -> int:
        return int(abi.library().hvdft_observer_log_records(self._handle))

    def _known(self, rank: int) -> int:
        """Returns a rank that the core may look up; what lies behind the last one is not a rank's.

        Raises:
            ValueError: the job has no such rank.
        """
        if not 0 <= rank < self.size:
            raise ValueError(f"there is no rank {rank} in a job of {self.size}")
        return rank

    def status(self, rank: int) -> Status:
        out = ffi.new("hvdft_status *")
        abi.checked(abi.library().hvdft_observer_status(self._handle, self._known(rank), out))
        return abi.read(Status, out)

    def left(self, rank: int) -> Left:
        """Whether a rank has left the running job."""
        return Left(abi.library().hvdft_observer_left(self._handle, self._known(rank)))

    def snapshots(self, rank: int) -> Snapshots:
        out = ffi.new("hvdft_snapshots *")
        abi.checked(abi.library().hvdft_observer_snapshots(self._handle, self._known(rank), out))
        return abi.read(Snapshots, out)

    def memory(self, first_rank: int, *, most: bool = False) -> Memory | None:
        """The memory of the node whose first rank this is; None for other ranks.

        Args:
            first_rank: of the node. Only rank 0's node knows the memory of others.
            most: the most of each part since the job began, each at its own moment; else now.
        """
        out = ffi.new("hvdft_memory *")
        first = self._known(first_rank)
        known = abi.library().hvdft_observer_memory(self._handle, first, most, out)
        return abi.read(Memory, out) if known else None

    def watch(self, rank: int) -> Watch:
        out = ffi.new("hvdft_watch *")
        abi.checked(abi.library().hvdft_observer_watch(self._handle, self._known(rank), out))
        return abi.read(Watch, out)

    def times(self, rank: int) -> Times:
        """How a rank has spent its time, measured on its own node; what is slow: slow_rule.py."""
        out = ffi.new("hvdft_times *")
        abi.checked(abi.library().hvdft_observer_times(self._handle, self._known(rank), out))
        return abi.read(Times, out)

    def clock_ahead_ns(self, first_rank: int) -> int:
        """Returns by how many ns this node's clock is ahead of that of the node of this first rank.

        It includes the shortest time that a message took; 0 if this is the node, or nothing is
        known.
        """
        first = self._known(first_rank)
        return int(abi.library().hvdft_observer_clock_ahead(self._handle, first))

    def op_moments(self, rank: int, *, of_ring: bool = False) -> dict[int, OpMoments]:
        """Returns when a rank came to its latest ops, by their ids, on this node's clock.

        Args:
            rank: of this node; if ops are traced, and this is rank 0's node, any one.
            of_ring: of the messages of the ring between nodes instead, which the node of this
                first rank has received.
        """
        out = ffi.new("hvdft_op_moments[]", OPS_KEPT)
        read = abi.library().hvdft_observer_op_moments
        found = read(self._handle, self._known(rank), of_ring, out, OPS_KEPT)
        return {out[n].op: abi.read(OpMoments, out[n]) for n in range(found)}

    @property
    def divergences(self) -> int:
        """How many there were."""
        return int(abi.library().hvdft_observer_divergences(self._handle))

    def divergence(self, number: int) -> Divergence | None:
        """A divergence by its number; None if newer ones have overwritten it."""
        read = abi.library().hvdft_observer_divergence
        return read_divergence(lambda at, out: read(self._handle, at, out), number)

    def report(self, start: int = 0) -> list[Event]:
        """The events of all ranks, on rank 0's node; :meth:`events` has those of concern here."""
        return read_events(
            lambda at, out, n: abi.library().hvdft_observer_report(self._handle, at, out, n), start
        )

    def events(self, start: int = 0) -> list[Event]:
        return read_events(
            lambda at, out, n: abi.library().hvdft_observer_events(self._handle, at, out, n), start
        )
