"""The core of a checkpoint writer, seen from Python: see `hvd_ft_checkpoints.h`."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import ceil
from typing import TYPE_CHECKING

from hvd_ft.errors import HvdFtError
from hvd_ft.native import abi
from hvd_ft.native.abi import ffi
from hvd_ft.native.types import Event, EventType, Snapshot

if TYPE_CHECKING:
    import numpy as np

_SLOTS = 2
_NO_LOG = -1
_NOW = (1 << 64) - 1


@dataclass(frozen=True)
class Place:
    """A node's place in its job.

    Attributes:
        size: number of ranks of the job.
        nodes: number of nodes of the job.
        node: number of this node.
        first: the first rank of this node.
        locals: the ranks of this node.
    """

    size: int
    nodes: int
    node: int
    first: int
    locals: int

    @property
    def ranks(self) -> range:
        """The ranks of this node."""
        return range(self.first, self.first + self.locals)


class Checkpointer:
    """A checkpoint writer's attachment to a node's arenas.

    Args:
        directory: the directory of the node's arenas.
        job: the job's id.

    Attributes:
        path: the directory.
        place: the node's place in the job.

    Raises:
        HvdFtError: the arenas are missing, or belong to another job.
    """

    def __init__(self, directory: str, job: str) -> None:
        self.path = directory
        self._library = abi.library()
        self._handle = self._library.hvdft_checkpointer_open(directory.encode(), job.encode())
        if not self._handle:
            raise HvdFtError(abi.error())
        self._seen = ffi.new("uint64_t *")  # events of checkpoint writers
        self._all_seen = 0
        out = ffi.new("hvdft_place *")
        self._library.hvdft_checkpointer_place(self._handle, out)
        self.place = abi.read(Place, out)

    def close(self) -> None:
        """Unmaps the arenas; nothing else may be called afterwards."""
        if self._handle:
            self._library.hvdft_checkpointer_close(self._handle)
            self._handle = None

    @property
    def has_ranks(self) -> bool:
        """Whether a rank of this node is present now."""
        return not set(self.place.ranks).isdisjoint(self.present())

    def present(self, position: int | None = None) -> list[int]:
        """The job's ranks that are present at a position of the op log, or now."""
        at = _NOW if position is None else position
        return [
            rank
            for rank in range(self.place.size)
            if self._library.hvdft_checkpointer_present(self._handle, rank, at)
        ]

    def loops(self, rank: int) -> int:
        """The number of training loops that a rank has begun."""
        return int(self._library.hvdft_checkpointer_loops(self._handle, rank))

    def slots(self, rank: int, loop: int) -> Iterator[tuple[int, Snapshot]]:
        """Yields the snapshots that a rank of this node has now, each with its slot."""
        out = ffi.new("hvdft_snapshot *")
        for slot in range(_SLOTS):
            if self._library.hvdft_checkpointer_slot(self._handle, rank, loop, slot, out):
                yield slot, abi.read(Snapshot, out)

    def copy(self, rank: int, loop: int, slot: int, snapshot: Snapshot, to: "np.ndarray") -> bool:
        """Copies a snapshot; returns False if the slot now holds another one.

        Args:
            rank: a rank of this node.
            loop: the training loop of the snapshot.
            slot: the slot of the snapshot.
            snapshot: its description by `slots`.
            to: an array of uint8, as long as the snapshot.
        """
        struct = ffi.new("hvdft_snapshot *", asdict(snapshot))
        room = ffi.cast("void *", to.ctypes.data)
        return bool(
            abi.checked(
                self._library.hvdft_checkpointer_copy(self._handle, rank, loop, slot, struct, room)
            )
        )

    def messages(self, source: int, dest: int, *, sent: bool, loop: int, slot: int) -> int | None:
        """The number of messages sent, or received, up to a snapshot; None if there is no log.

        Raises:
            HvdFtError: the log cannot be read.
        """
        count = self._library.hvdft_checkpointer_messages(
            self._handle, source, dest, sent, loop, slot
        )
        return None if count == _NO_LOG else abi.checked(int(count))

    def request(self) -> int:
        """Asks all ranks for a snapshot, and all writers to write it.

        Returns:
            The position of the op log after which the snapshot lies.
        """
        return int(self._library.hvdft_checkpointer_request(self._handle))

    def mark(self) -> None:
        """Requests another mark: one from before a training loop has no effect in that loop."""
        self._library.hvdft_checkpointer_mark(self._handle)

    @property
    def loops_of_all(self) -> int:
        """The number of training loops that all ranks of this node have begun."""
        return min(map(self.loops, self.place.ranks))

    def event(self, kind: EventType, detail: int) -> None:
        """Publishes an event for the writers of all nodes."""
        self._library.hvdft_checkpointer_event(self._handle, kind, detail)

    def next_event(self) -> Event | None:
        """Returns the next event of checkpoint writers; None if there is none yet."""
        out = ffi.new("hvdft_event *")
        if not self._library.hvdft_checkpointer_next(self._handle, self._seen, out):
            return None
        return abi.read(Event, out)

    def wait(self, seconds: float, *, any_event: bool = False) -> None:
        """Waits for an event of checkpoint writers, or any event, or a call of `wake`.

        Args:
            seconds: the longest time.
            any_event: whether to wait for any event since the latest call, such as a snapshot.
        """
        start = self._all_seen if any_event else self._seen[0]
        self._library.hvdft_checkpointer_wait(
            self._handle, start, any_event, ceil(max(seconds, 0) * 1000)
        )
        self._all_seen = self.event_count

    def wake(self) -> None:
        """Ends another thread's present wait or, if there is none, its next one."""
        self._library.hvdft_checkpointer_wake(self._handle)

    @property
    def event_count(self) -> int:
        """The number of events of any kind so far."""
        return int(self._library.hvdft_checkpointer_event_count(self._handle))

    @property
    def ended_well(self) -> bool:
        """Whether all ranks are done, and the job was not stopped."""
        return bool(self._library.hvdft_checkpointer_ended_well(self._handle))
